import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from resperturb.data import load_pair
from resperturb.errors import UsageError

RNG = np.random.default_rng(0)


def pictures(n: int, shape: tuple[int, ...] = (8, 8)) -> np.ndarray:
    return RNG.integers(0, 256, (n, *shape), dtype=np.uint8)


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def write_parquet(path: Path, images, names=None, image_column="image", **columns) -> Path:
    """Write a table as the Hugging Face hub does: images as structs, class names in the metadata."""
    cells = [{"bytes": image if isinstance(image, bytes | None) else png(image), "path": None} for image in images]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.table({image_column: pa.array(cells, kind), **{key: pa.array(v) for key, v in columns.items()}})
    if names is not None:
        features = {image_column: {"_type": "Image"}, "label": {"names": names, "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return path


def write_images(folder: Path, per_class: dict[str, np.ndarray]) -> Path:
    for name, images in per_class.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number, image in enumerate(images):
            Image.fromarray(image).save(folder / name / f"{number:03}.png")
    return folder


def refused(spec: object, *parts: str, **options) -> None:
    """Assert that loading is refused in one sentence that holds every one of ``parts``."""
    with pytest.raises(UsageError) as raised:
        load_pair(str(spec), **options)
    message = str(raised.value)
    assert "\n" not in message
    for part in parts:
        assert part in message, message


# The embedded sample


def test_the_sample_is_balanced_and_enough_for_four_quarters_and_a_test():
    train, test = load_pair("fashion-sample")
    assert train.images.shape == (4000, 1, 28, 28)
    assert test.images.shape == (2000, 1, 28, 28)
    assert torch.bincount(train.labels).tolist() == [400] * 10
    assert torch.bincount(test.labels).tolist() == [200] * 10
    assert (train.classes[0], train.classes[9]) == ("T-shirt/top", "Ankle boot")
    assert train.groups is None


def test_no_image_of_the_sample_is_in_it_twice():
    train, test = load_pair("fashion-sample")
    assert len({image.numpy().tobytes() for image in (*train.images, *test.images)}) == 6000


def test_the_sample_looks_like_its_labels():
    """A nearest-centroid classifier gets about two thirds of Fashion-MNIST right; shuffled labels a tenth."""
    train, test = load_pair("fashion-sample")
    flat, queries = train.images.flatten(1).float(), test.images.flatten(1).float()
    centroids = torch.stack([flat[train.labels == label].mean(0) for label in range(10)])
    accuracy = (torch.cdist(queries, centroids).argmin(1) == test.labels).float().mean()
    assert 0.6 < accuracy < 0.75


def test_the_sample_is_small_and_carries_its_licence():
    folder = Path(sys.modules["resperturb.data"].__file__ or "").parent / "embedded"
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 3_000_000
    assert "MIT License" in (folder / "NOTICE.txt").read_text()


def test_the_sample_has_no_groups_and_says_so():
    refused("fashion-sample", "patient", group_column="patient")


# Parquet


def test_a_folder_of_parquet_files_with_declared_classes(tmp_path):
    train, test = pictures(6, (8, 8, 3)), pictures(4, (8, 8, 3))
    names = ["zebra", "ant", "never seen"]
    write_parquet(tmp_path / "train.parquet", train, names, label=[0, 1, 0, 1, 0, 1])
    write_parquet(tmp_path / "test.parquet", test, names, label=[1, 1, 0, 0])
    first, second = load_pair(str(tmp_path))
    assert first.classes == second.classes == ("zebra", "ant", "never seen")
    assert first.labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert np.array_equal(first.images.permute(0, 2, 3, 1), train)
    assert np.array_equal(second.images.permute(0, 2, 3, 1), test)
    assert torch.equal(load_pair(str(tmp_path))[1].images, second.images)


def test_shards_are_read_in_order_and_errors_name_the_right_one(tmp_path):
    images = pictures(8)
    write_parquet(tmp_path / "data" / "train-00000-of-00002.parquet", images[:4], label=[0, 1, 0, 1])
    second = tmp_path / "data" / "train-00001-of-00002.parquet"
    write_parquet(second, images[4:], label=[0, 1, 0, 1])
    write_parquet(tmp_path / "data" / "validation-00000-of-00001.parquet", pictures(2), label=[0, 1])
    train, test = load_pair(str(tmp_path))
    assert np.array_equal(train.images[:, 0], images)
    assert len(test) == 2
    write_parquet(second, [png(images[4]), b"junk"], label=[0, 1])
    refused(tmp_path, f"row 1 of {second}")


def test_one_parquet_file_holds_out_a_fifth_of_each_class_always_the_same(tmp_path):
    images = pictures(40)
    file = write_parquet(tmp_path / "all.parquet", images, label=["b", "a", "b", "b"] * 10)
    train, test = load_pair(str(file))
    assert train.classes == ("a", "b")
    assert torch.bincount(train.labels).tolist() == [8, 24]
    assert torch.bincount(test.labels).tolist() == [2, 6]
    seen = {image.numpy().tobytes() for image in (*train.images, *test.images)}
    assert seen == {image.tobytes() for image in images}
    assert load_pair(str(file))[1].fingerprint == test.fingerprint


def test_one_parquet_file_with_groups_never_splits_a_group(tmp_path):
    patients = [f"p{i % 10}" for i in range(100)]
    file = write_parquet(tmp_path / "a.parquet", pictures(100), label=[0, 1, 1, 0, 1] * 20, patient=patients)
    train, test = load_pair(str(file), group_column="patient")
    assert train.groups is not None
    assert test.groups is not None
    assert set(train.groups) | set(test.groups) == set(patients)
    assert not set(train.groups) & set(test.groups)
    assert len(test) == 20


def test_groups_in_both_parts_are_refused(tmp_path):
    write_parquet(tmp_path / "train.parquet", pictures(4), label=[0, 1, 0, 1], patient=[1, 2, 3, 4])
    write_parquet(tmp_path / "test.parquet", pictures(2), label=[0, 1], patient=[4, 5])
    refused(tmp_path, "1 group(s), e.g. '4'", group_column="patient")
    assert len(load_pair(str(tmp_path))[1]) == 2


def test_columns_are_guessed_or_named(tmp_path):
    images = pictures(10)
    file = tmp_path / "a.parquet"
    write_parquet(file, images, image_column="img", fine_label=[0, 1] * 5)
    assert load_pair(str(file))[0].num_classes == 2
    write_parquet(file, images, image_column="scan", diagnosis=["ill", "well"] * 5)
    refused(file, "holds the images", "'scan', 'diagnosis'", "--image-column")
    refused(file, "holds the labels", "'scan', 'diagnosis'", "--label-column", image_column="scan")
    named = load_pair(str(file), image_column="scan", label_column="diagnosis")[0]
    assert named.classes == ("ill", "well")


@pytest.mark.parametrize("kind", ["image", "label", "group"])
def test_a_missing_column_is_refused_with_the_existing_ones(tmp_path, kind):
    file = write_parquet(tmp_path / "a.parquet", pictures(4), label=[0, 1, 0, 1])
    options = {f"{kind}_column": "absent"}
    refused(file, f"no {kind} column 'absent'", str(file), "'image', 'label'", **options)


def test_images_may_be_bare_bytes_or_paths_next_to_the_file(tmp_path):
    images = pictures(10)
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"image": [png(image) for image in images], "label": [0, 1] * 5}), file)
    from_bytes = load_pair(str(file))
    for number, image in enumerate(images):
        (tmp_path / f"{number}.png").write_bytes(png(image))
    pq.write_table(pa.table({"image": [f"{i}.png" for i in range(10)], "label": [0, 1] * 5}), file)
    from_paths = load_pair(str(file))
    assert [part.fingerprint for part in from_bytes] == [part.fingerprint for part in from_paths]
    (tmp_path / "7.png").unlink()
    refused(file, f"row 7 of {file}", "not there")


def test_a_column_of_something_else_is_no_image_column(tmp_path):
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"image": [[1, 2], [3, 4]], "label": [0, 1]}), file)
    refused(file, "'image'", "list", "--image-column")


def test_a_missing_image_is_refused(tmp_path):
    file = write_parquet(tmp_path / "a.parquet", [*pictures(3), None], label=[0, 1, 0, 1])
    refused(file, f"row 3 of {file}", "missing")


@pytest.mark.parametrize("labels", [[0, None, 1, 1], [0.0, float("nan"), 1.0, 1.0], ["a", "", "b", "b"]])
def test_missing_labels_are_refused_by_row_and_column(tmp_path, labels):
    file = write_parquet(tmp_path / "a.parquet", pictures(4), label=labels)
    refused(file, f"row 1 of {file}", "column 'label'", "missing")


def test_fractional_labels_are_refused(tmp_path):
    file = write_parquet(tmp_path / "a.parquet", pictures(4), label=[0.0, 1.0, 0.5, 1.0])
    refused(file, f"row 2 of {file}", "0.5")


def test_a_missing_group_is_refused(tmp_path):
    file = write_parquet(tmp_path / "a.parquet", pictures(4), label=[0, 1, 0, 1], patient=["p", "q", None, "r"])
    refused(file, f"row 2 of {file}", "column 'patient'", "missing", group_column="patient")


def test_numbers_that_are_no_indices_become_classes_in_numeric_order(tmp_path):
    file = write_parquet(tmp_path / "a.parquet", pictures(40), label=[10, 9, -1, 100] * 10)
    train = load_pair(str(file))[0]
    assert train.classes == ("-1", "9", "10", "100")
    assert torch.bincount(train.labels).tolist() == [8] * 4


def test_a_label_outside_the_declared_classes_is_refused(tmp_path):
    file = write_parquet(tmp_path / "a.parquet", pictures(20), ["a", "b"], label=[0, 1] * 9 + [-1, -1])
    refused(file, "is -1, outside 0..1")


def test_a_test_label_that_training_lacks_is_refused(tmp_path):
    write_parquet(tmp_path / "train.parquet", pictures(4), label=["a", "b", "a", "b"])
    test = write_parquet(tmp_path / "test.parquet", pictures(3), label=["a", "b", "c"])
    refused(tmp_path, f"row 2 of {test}", "'c'")


def test_parts_that_number_their_classes_differently_are_refused(tmp_path):
    write_parquet(tmp_path / "train.parquet", pictures(4), ["a", "b"], label=[0, 1, 0, 1])
    write_parquet(tmp_path / "test.parquet", pictures(2), ["b", "a"], label=[0, 1])
    refused(tmp_path, "different class names")


def test_a_single_class_is_refused(tmp_path):
    file = write_parquet(tmp_path / "a.parquet", pictures(6), label=["well"] * 6)
    refused(file, "one class", "'well'", str(file))


def test_an_empty_table_is_refused(tmp_path):
    file = write_parquet(tmp_path / "a.parquet", [], label=pa.array([], pa.int64()))
    refused(file, "no images", str(file))


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not parquet at all" * 10])
def test_a_file_that_is_not_parquet_is_refused(tmp_path, content):
    file = tmp_path / "a.parquet"
    file.write_bytes(content)
    refused(file, str(file), "no parquet file")


def test_a_truncated_parquet_file_is_refused(tmp_path):
    file = write_parquet(tmp_path / "a.parquet", pictures(20), label=[0, 1] * 10)
    whole = file.read_bytes()
    for length in range(0, len(whole), len(whole) // 9):
        file.write_bytes(whole[:length])
        refused(file, str(file))


def test_a_corrupt_image_is_refused_by_row_also_under_a_limit(tmp_path):
    images = [png(image) for image in pictures(30)]
    images[17] = images[17][:40]
    write_parquet(tmp_path / "train.parquet", images, label=[0, 1] * 15)
    write_parquet(tmp_path / "test.parquet", pictures(2), label=[0, 1])
    refused(tmp_path, f"row 17 of {tmp_path / 'train.parquet'}", "corrupt")
    refused(tmp_path, f"row 17 of {tmp_path / 'train.parquet'}", "corrupt", limit=29)


def test_parts_are_made_alike_in_channels_and_refused_if_unlike_in_size(tmp_path):
    write_parquet(tmp_path / "train.parquet", pictures(4, (8, 8, 3)), label=[0, 1, 0, 1])
    grey = pictures(2)
    write_parquet(tmp_path / "test.parquet", grey, label=[0, 1])
    test = load_pair(str(tmp_path))[1]
    assert test.channels == 3
    assert np.array_equal(test.images, np.stack([grey] * 3, axis=1))
    write_parquet(tmp_path / "test.parquet", pictures(2, (9, 7)), label=[0, 1])
    refused(tmp_path, "8x8", "7x9", "--image-size")
    assert load_pair(str(tmp_path), image_size=16)[1].size == (16, 16)


def test_a_limit_is_a_fair_and_constant_choice_of_each_part(tmp_path):
    images = pictures(200)
    write_parquet(tmp_path / "train.parquet", images, label=[0] * 100 + [1] * 100)
    write_parquet(tmp_path / "test.parquet", pictures(10), label=[0, 1] * 5)
    train, test = load_pair(str(tmp_path), limit=50)
    assert (len(train), len(test)) == (50, 10)
    assert 10 < int(train.labels.sum()) < 40
    assert load_pair(str(tmp_path), limit=50)[0].fingerprint == train.fingerprint
    small = {image.numpy().tobytes() for image in load_pair(str(tmp_path), limit=20)[0].images}
    assert small < {image.numpy().tobytes() for image in train.images}
    refused(tmp_path, "limit of 1", limit=1)


# Image folders


def test_an_image_folder_with_parts(tmp_path):
    cats, dogs = pictures(3), pictures(4)
    write_images(tmp_path / "train", {"dog": dogs, "cat": cats})
    write_images(tmp_path / "test", {"dog": pictures(2)})
    (tmp_path / "train" / "cat" / ".hidden.png").write_bytes(b"junk")
    (tmp_path / "train" / "cat" / "Thumbs.db").write_bytes(b"junk")
    train, test = load_pair(str(tmp_path))
    assert train.classes == ("cat", "dog")
    assert np.array_equal(train.images[:, 0], np.concatenate([cats, dogs]))
    assert train.labels.tolist() == [0] * 3 + [1] * 4
    assert test.labels.tolist() == [1, 1]


def test_an_image_folder_without_parts_holds_out_a_fifth(tmp_path):
    write_images(tmp_path, {"cat": pictures(10), "train": pictures(20)})  # a class may be called train
    train, test = load_pair(str(tmp_path))
    assert train.classes == ("cat", "train")
    assert torch.bincount(train.labels).tolist() == [8, 16]
    assert torch.bincount(test.labels).tolist() == [2, 4]


def test_the_groups_of_an_image_folder_come_from_its_metadata(tmp_path):
    write_images(tmp_path, {"ill": pictures(20), "well": pictures(20)})
    refused(tmp_path, str(tmp_path / "metadata.csv"), "'file_name'", group_column="patient")
    files = [f"{name}/{i:03}.png" for name in ("ill", "well") for i in range(20)]
    lines = ["file_name,patient", *(f"{file},p{i % 8}" for i, file in enumerate(files))]
    (tmp_path / "metadata.csv").write_text("\n".join(lines))
    train, test = load_pair(str(tmp_path), group_column="patient")
    assert train.groups is not None
    assert test.groups is not None
    assert set(train.groups) | set(test.groups) == {f"p{i}" for i in range(8)}
    assert not set(train.groups) & set(test.groups)
    refused(tmp_path, "no column 'doctor'", "'file_name', 'patient'", group_column="doctor")
    (tmp_path / "metadata.csv").write_text("\n".join(lines[:-1]))
    refused(tmp_path, str(tmp_path / files[-1]), "missing", group_column="patient")


def test_a_corrupt_image_in_a_folder_is_refused_by_its_path(tmp_path):
    write_images(tmp_path, {"cat": pictures(5), "dog": pictures(5)})
    (tmp_path / "dog" / "002.png").write_bytes(b"junk")
    refused(tmp_path, str(tmp_path / "dog" / "002.png"), "corrupt")


def test_mixed_sizes_in_a_folder_need_an_image_size(tmp_path):
    write_images(tmp_path, {"cat": pictures(5), "dog": pictures(5, (16, 12))})
    refused(tmp_path, "8x8", "12x16", "--image-size")
    assert load_pair(str(tmp_path), image_size=10)[0].size == (10, 10)


def test_folders_without_images_are_refused(tmp_path):
    refused(tmp_path, str(tmp_path), "no images")
    (tmp_path / "loose.png").write_bytes(png(pictures(1)[0]))
    refused(tmp_path, "one folder per class")
    write_images(tmp_path, {"cat": pictures(2)})
    (tmp_path / "dog").mkdir()
    refused(tmp_path, str(tmp_path / "dog"), "no images")


def test_a_folder_of_one_class_is_refused(tmp_path):
    write_images(tmp_path, {"cat": pictures(5)})
    refused(tmp_path, "one class", "'cat'")


def test_columns_mean_nothing_to_an_image_folder(tmp_path):
    write_images(tmp_path, {"cat": pictures(5), "dog": pictures(5)})
    refused(tmp_path, "no columns", label_column="diagnosis")


def test_parquet_files_of_other_names_are_not_ignored(tmp_path):
    write_parquet(tmp_path / "scans.parquet", pictures(4), label=[0, 1, 0, 1])
    refused(tmp_path, "train*.parquet")


# npz


def test_npz_with_parts(tmp_path):
    images = pictures(10, (8, 8, 3))
    file = tmp_path / "a.npz"
    np.savez(file, x_train=images, y_train=[[0], [1]] * 5, x_test=images[:2], y_test=np.array([1, 0]))
    train, test = load_pair(str(file))
    assert np.array_equal(train.images.permute(0, 2, 3, 1), images)
    assert train.labels.tolist() == [0, 1] * 5
    assert test.labels.tolist() == [1, 0]


def test_npz_without_parts_and_with_groups(tmp_path):
    file = tmp_path / "a.npz"
    patients = np.repeat(np.arange(10), 4)
    np.savez(file, images=pictures(40), labels=np.array(["well", "ill"] * 20), patient=patients)
    train, test = load_pair(str(file), group_column="patient")
    assert train.classes == ("ill", "well")
    assert train.groups is not None
    assert test.groups is not None
    assert not set(train.groups) & set(test.groups)
    assert (len(train), len(test)) == (32, 8)


def test_npz_images_may_come_in_any_usual_form(tmp_path):
    colour = pictures(10, (8, 6, 3))
    grey = colour[..., 0]
    file = tmp_path / "a.npz"

    def loaded(images: np.ndarray) -> np.ndarray:
        np.savez(file, x_train=images, y_train=[0, 1] * 5, x_test=images, y_test=[0, 1] * 5)
        return load_pair(str(file))[0].images.permute(0, 2, 3, 1).numpy()

    assert np.array_equal(loaded(colour), colour)
    assert np.array_equal(loaded(colour.transpose(0, 3, 1, 2)), colour)
    assert np.array_equal(loaded(colour.astype(np.int64)), colour)
    assert np.array_equal(loaded((colour / 255).astype(np.float32)), colour)
    assert np.array_equal(loaded(colour.astype(np.uint16) * 257), colour)
    assert np.array_equal(loaded(grey)[..., 0], grey)
    assert np.array_equal(loaded(grey[..., None])[..., 0], grey)
    assert np.array_equal(loaded(grey > 127)[..., 0], (grey > 127) * 255)
    opaque = np.concatenate([colour, np.full_like(colour[..., :1], 255)], axis=3)
    assert np.array_equal(loaded(opaque), colour)


@pytest.mark.parametrize(
    ("images", "what"),
    [
        (np.full((4, 8, 8), -1.0), "-1.0"),
        (np.full((4, 8, 8), np.nan), "nan"),
        (np.full((4, 8, 8), 300), "300"),
        (np.full((4, 8, 8), 1 + 1j), "complex"),
        (np.zeros((4, 64), np.uint8), "(4, 64)"),
        (np.zeros((4, 8, 8, 7), np.uint8), "(4, 8, 8, 7)"),
        (np.zeros((0, 8, 8), np.uint8), "empty"),
    ],
)
def test_npz_arrays_that_are_no_images_are_refused(tmp_path, images, what):
    file = tmp_path / "a.npz"
    np.savez(file, images=images, labels=np.arange(len(images)) % 2)
    refused(file, str(file), "'images'", what)


def test_npz_files_with_pickled_objects_are_refused_and_never_unpickled(tmp_path):
    class Dangerous:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    file = tmp_path / "a.npz"
    np.savez(file, images=np.array([Dangerous(), 1], dtype=object), labels=[0, 1])
    refused(file, str(file), "pickled")
    assert not (tmp_path / "ran").exists()


def test_npz_files_that_are_none_or_damaged_are_refused(tmp_path):
    file = tmp_path / "a.npz"
    np.savez_compressed(file, images=pictures(10), labels=[0, 1] * 5)
    whole = file.read_bytes()
    file.write_bytes(whole[:-30])
    refused(file, str(file))
    flipped = bytearray(whole)
    flipped[len(whole) // 3] ^= 0xFF
    file.write_bytes(bytes(flipped))
    refused(file, str(file))
    with file.open("wb") as out:
        np.save(out, pictures(2))
    refused(file, "no npz file")


def test_npz_arrays_that_are_not_there_or_do_not_match_are_refused(tmp_path):
    file = tmp_path / "a.npz"
    np.savez(file, pixels=pictures(4), labels=[0, 1, 0, 1])
    refused(file, "no array 'images'", "'pixels', 'labels'")
    assert load_pair(str(file), image_column="pixels")[0].num_classes == 2
    np.savez(file, images=pictures(4), labels=[0, 1, 0])
    refused(file, "'labels'", "4 images")
    np.savez(file, x_train=pictures(4), y_train=[0, 1, 0, 1], x_test=pictures(1))
    refused(file, "no array 'y_test'")


# Names


@pytest.mark.parametrize(
    "spec", ["./absent", "absent", "here/absent", "a/b/absent", "absent.parquet", "x/absent.npz", "~/absent"]
)
def test_a_missing_path_is_refused_without_network_access(spec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    monkeypatch.setitem(sys.modules, "datasets", None)  # importing it would fail
    refused(spec, "no file or folder", spec, "fashion-sample")


def test_an_empty_name_is_refused():
    refused("", "Name the data")


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("image,label")
    refused(tmp_path / "a.csv", "a.csv", ".parquet")


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10", "cifar100"])
def test_short_forms_are_looked_up_in_the_data_folder_and_know_their_columns(name, tmp_path, monkeypatch):
    image = "img" if "cifar" in name else "image"
    label = "fine_label" if name == "cifar100" else "label"
    decoy = {"coarse_label": [0] * 4, "class": [0] * 4}
    for part in ("train", "test"):
        write_parquet(tmp_path / name / f"{part}.parquet", pictures(4), None, image, **decoy, **{label: [0, 1, 1, 0]})
    monkeypatch.setenv("RESPERTURB_DATA", str(tmp_path))
    train = load_pair(name)[0]
    assert train.labels.tolist() == [0, 1, 1, 0]
    assert train.name == name


def test_idc_is_grouped_by_patient_by_default(tmp_path, monkeypatch):
    for part, who in (("train", ["a", "a", "b", "c"]), ("test", ["d", "d", "e", "f"])):
        write_parquet(tmp_path / "idc" / f"{part}.parquet", pictures(4), label=[0, 1, 1, 0], patient=who)
    monkeypatch.setenv("RESPERTURB_DATA", str(tmp_path))
    train = load_pair("idc")[0]
    assert train.groups is not None
    assert train.groups.tolist() == ["a", "a", "b", "c"]


def test_a_short_form_that_is_nowhere_says_how_to_provide_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RESPERTURB_DATA", str(tmp_path))
    refused("idc", "idc/train.parquet", "RESPERTURB_DATA", str(tmp_path))


def test_without_a_network_a_hub_name_says_how_to_provide_it(tmp_path):
    code = "from resperturb.data import load_pair; load_pair('cifar10')"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    environment.pop("RESPERTURB_DATA", None)
    run = subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True)
    last = run.stderr.strip().splitlines()[-1]
    assert re.search(
        r"ResperturbError: .*uoft-cs/cifar10.*no connection.*cifar10/train\.parquet.*RESPERTURB_DATA", last
    ), run.stderr


def test_a_hub_data_set_is_read_like_its_parquet_files(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    from resperturb.data.records import Columns
    from resperturb.data.sources import Place, hub

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    images = pictures(6)
    for part in ("train", "test"):
        file = tmp_path / "set" / f"{part}.parquet"
        write_parquet(file, images, ["a", "b"], label=[0, 1, 1, 0, 1, 0], patient=[f"{part} {i}" for i in range(6)])
    # A folder stands in for a repository of the hub: the client reads both in the same way.
    monkeypatch.setitem(hub.SHORT_FORMS, "owner/name", str(tmp_path / "set"))
    train, test = hub.Hub().read(Place("owner/name", None, Columns(group="patient")))
    assert train.groups is not None
    assert train.groups.tolist() == [f"train {i}" for i in range(6)]
    assert train.names == ("a", "b")
    assert train.labels == (0, 1, 1, 0, 1, 0)
    assert list(train.images) == [png(image) for image in images]
    assert test is not None
    assert len(test) == 6


@pytest.mark.parametrize("option", ["image_size", "limit"])
@pytest.mark.parametrize("value", [0, -3, 1.5, True, "8"])
def test_bad_sizes_and_limits_are_refused(option, value):
    refused("fashion-sample", repr(value), **{option: value})
