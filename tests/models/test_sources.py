"""Networks of other libraries and of the user's own, for any images and classes, alone and in ensembles."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import resperturb as rp
from resperturb.errors import ResperturbError, UsageError
from resperturb.models.adapt import adapt_channels, load_weights, replace_head, without_batch_norm
from resperturb.models.names import parse_name
from resperturb.models.source import source_of

OWN = """
from torch import nn

def make(num_classes, in_channels, width=4):
    return nn.Sequential(nn.Conv2d(in_channels, width, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(width, num_classes))

def fixed():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 1000))

def text():
    return "network"
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_nets_for_test.py").write_text(OWN)
    monkeypatch.delitem(sys.modules, "own_nets_for_test", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


LOADS = """
import torch
operators = torch.library.Library("torchvision", "DEF")
operators.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
NEEDS_OPERATORS = """
import torch
torch._C._dispatch_has_kernel_for_dispatch_key("torchvision::nms", "CPU")
"""


@pytest.mark.parametrize(("build", "declared"), [(LOADS, 1), (NEEDS_OPERATORS, 1), ("", 0)])
def test_operators_of_torchvision_are_declared_only_after_its_import_has_failed(
    tmp_path: Path, build: str, declared: int
) -> None:
    (tmp_path / "torchvision.py").write_text(build)
    code = (
        "import torch\nfrom resperturb.models import library\nlibrary('torchvision', 'this')\n"
        "print(len([name for name in torch._C._dispatch_get_all_op_names() if 'torchvision' in name]))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, str(declared)), done.stderr


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("timm:resnet10t", {}),
        ("timm:vit_tiny_patch16_224", {"depth": 1}),
        ("torchvision:resnet18", {}),
        ("torchvision:squeezenet1_1", {}),
        ("transformers:vit", {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "patch_size": 8}),
        ("own_nets_for_test:make", {"width": 6}),
        ("en2-own_nets_for_test:make", {}),
        ("en2-timm:resnet10t", {}),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_a_network_by_name_gives_logits_of_the_classes(
    own: Path, name: str, args: dict[str, int], channels: int
) -> None:
    model = rp.models.build(name, num_classes=4, in_channels=channels, image_size=(32, 32), args=args).eval()
    assert model(torch.zeros(2, channels, 32, 32)).shape == (2, 4)


def test_a_users_network_for_other_classes_gets_a_new_head(own: Path) -> None:
    model = rp.models.build("own_nets_for_test:fixed", num_classes=4)
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 4)


def test_the_name_of_a_users_network_changes_with_its_source(own: Path) -> None:
    name = parse_name("own_nets_for_test:make")
    before = source_of(name).fingerprint(name, {})
    file = own / "own_nets_for_test.py"
    file.write_text(file.read_text() + "# changed\n")
    assert source_of(name).fingerprint(name, {}) != before


def test_a_folder_of_transformers_is_built_again(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], layer_type="basic")
    transformers.ResNetForImageClassification(config).save_pretrained(tmp_path / "mine")
    name = f"transformers:{tmp_path / 'mine'}"
    model = rp.models.build(name, num_classes=5, pretrained=True)
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 5)
    rp.perturb(model, rp.Additive(gamma=0.5))
    assert not model(torch.zeros(2, 3, 32, 32)).equal(model(torch.zeros(2, 3, 32, 32)))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("timm:resnet18x", {}, "timm has no network 'resnet18x'"),
        ("timm:resnet10t", {"args": {"colour": 1}}, "timm:resnet10t cannot be built with .*colour"),
        ("timm:resnet10t", {"skip": False}, "without skip connections"),
        ("timm:resnet10t", {"dropout": 0.5}, "--dropout is of resnet8"),
        ("torchvision:resnet19", {}, "torchvision has no network 'resnet19'; it has .*resnet18"),
        ("torchvision:resnet18", {"args": {"colour": 1}}, "torchvision:resnet18 cannot be built"),
        ("transformers:no_such_type", {}, "no model type 'no_such_type'"),
        ("transformers:vit", {"pretrained": True}, "a model type has no weights"),
        ("no_such_package.nets:make", {}, "cannot be imported"),
        ("own_nets_for_test:nothing", {}, "no function 'nothing'"),
        ("own_nets_for_test:text", {}, "returned str, not a torch.nn.Module"),
        ("own_nets_for_test:make", {"args": {"colour": 1}}, "no parameter colour; it has num_classes"),
        ("own_nets_for_test:make", {"pretrained": True}, "--weights FILE"),
        ("resnet8", {"pretrained": True}, "no pretrained weights of resnet8"),
        ("resnet8", {"args": {"width": 3}}, "takes no arguments"),
    ],
)
def test_a_network_that_cannot_be_built_is_refused_in_one_sentence(
    own: Path, name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        rp.models.build(name, num_classes=4, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["timm:resnet10t", "torchvision:resnet18"])
def test_pretrained_weights_that_cannot_be_fetched_say_so(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No test uses the network: the fetching functions fail as they do without one."""
    import huggingface_hub
    import torch.hub

    def offline(*args: object, **kwargs: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", offline)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", offline)
    monkeypatch.setattr("timm.models._hub.hf_hub_download", offline)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    with pytest.raises(ResperturbError, match=r"could not be fetched.*--weights FILE"):
        rp.models.build(name, num_classes=4, pretrained=True)


def test_group_norm_takes_the_place_of_batch_norm_in_stock_networks() -> None:
    for name in ("timm:resnet10t", "timm:mobilenetv3_small_050", "torchvision:resnet18"):
        model = rp.models.build(name, num_classes=4, norm="group").train()
        assert not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules())
        if "mobilenet" not in name:  # which has dropout
            x = torch.randn(3, 3, 64, 64)
            torch.testing.assert_close(model(x)[:1], model(x[:1]), rtol=1e-3, atol=1e-4)


def test_changes_are_said() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
    said = without_batch_norm(model)
    assert [text.split()[1] for text in said] == ["BatchNorm", "activations"]
    assert without_batch_norm(model) == []


def test_weights_of_a_file_are_taken_and_a_head_of_other_classes_is_not(tmp_path: Path) -> None:
    trained = rp.models.build("resnet8", num_classes=10)
    save_file(trained.state_dict(), tmp_path / "weights.safetensors")
    model = rp.models.build("resnet8", num_classes=3)
    kept = load_weights(model, tmp_path / "weights.safetensors")
    assert kept == ["head.weight", "head.bias"]
    assert model.stem.weight.equal(trained.stem.weight)
    with pytest.raises(UsageError, match="weights of another network"):
        load_weights(rp.models.build("resnet20", num_classes=10), tmp_path / "weights.safetensors")
    (tmp_path / "pickle.pt").write_bytes(b"\x80\x04")
    with pytest.raises(UsageError, match="not a safetensors file"):
        load_weights(model, tmp_path / "pickle.pt")


def test_first_and_last_layers_are_made_to_fit() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 1000))
    nn.init.ones_(model[0].weight)
    adapt_channels(model, 1)
    replace_head(model, 7)
    assert model[0].weight.eq(3).all()  # a grey image gives what three equal channels gave
    assert model(torch.zeros(1, 1, 4, 4)).shape == (1, 7)
    before = model[2]
    replace_head(model, 7)
    assert model[2] is before


def test_a_new_source_is_one_class() -> None:
    from resperturb.models.source import network_sources

    @rp.models.register_network("linear-for-test")
    class Linear(rp.models.NetworkSource):
        examples = "linear-for-test:any"

        def build(self, name: object, request: rp.models.Request) -> nn.Module:
            return nn.Sequential(nn.Flatten(), nn.LazyLinear(request.num_classes))

    try:
        model = rp.models.build("en2-linear-for-test:small", num_classes=3)
        assert model(torch.zeros(2, 3, 4, 4)).shape == (2, 3)
    finally:
        network_sources._found.pop("linear-for-test")
