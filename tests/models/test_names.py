"""A network's name is parsed in one place, and means one thing."""

import pytest

from resperturb.errors import UsageError
from resperturb.models.names import NetworkName, parse_name
from resperturb.models.source import source_of


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("resnet8", NetworkName("", "resnet8")),
        ("en5-resnet8", NetworkName("", "resnet8", 5)),
        ("en1-resnet8", NetworkName("", "resnet8", 1)),
        ("timm:resnet26d", NetworkName("timm", "resnet26d")),
        ("en5-timm:resnet18", NetworkName("timm", "resnet18", 5)),
        ("my_package.nets:make", NetworkName("my_package.nets", "make")),
        ("transformers:./my-model", NetworkName("transformers", "./my-model")),
        ("wide-resnet28", NetworkName("", "wide-resnet28")),
        ("timm:en5-net", NetworkName("timm", "en5-net")),
    ],
)
def test_a_name_is_taken_apart_and_put_together_again(text: str, parts: NetworkName) -> None:
    assert parse_name(text) == parts
    assert str(parts) == text


def test_the_networks_of_an_ensemble_are_counted() -> None:
    assert [parse_name(name).networks for name in ("resnet8", "en1-resnet8", "en5-timm:resnet18")] == [1, 1, 5]
    assert str(parse_name("en5-timm:resnet18").single) == "timm:resnet18"


@pytest.mark.parametrize("name", ["", "en0-resnet8", "en100-resnet8", "res net", 8, None, "timm:"])
def test_an_invalid_name_is_refused(name: object) -> None:
    with pytest.raises(UsageError):
        parse_name(name)


def test_an_unknown_network_is_not_taken_for_a_known_one() -> None:
    with pytest.raises(UsageError, match=r"unknown network 'wide-resnet28'.*resnet8.*timm:.*torchvision:"):
        source_of(parse_name("wide-resnet28"))
