"""DICOM files, through pydicom, which is the optional extra ``resperturb[dicom]``."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from resperturb.data.paths import one_line, open_regular, printable
from resperturb.errors import UsageError
from resperturb.extras import needed

_MAGIC_AT, _MAGIC = 128, b"DICM"
_META, _DEFLATED = 0x0002, "1.2.840.10008.1.2.1.99"


def is_dicom(file: BinaryIO) -> bool:
    """Say whether an open file is a DICOM file; its position stays.

    >>> import io
    >>> is_dicom(io.BytesIO(bytes(128) + b"DICM"))
    True
    """
    place = file.tell()
    file.seek(_MAGIC_AT)
    found = file.read(len(_MAGIC)) == _MAGIC
    file.seek(place)
    return found


def dicom_pixels(
    file: BinaryIO, where: str, check_size: Callable[[int, int], None]
) -> tuple[np.ndarray[Any, Any], int]:
    """Read one image: its stored values as unsigned integers, dark to bright, and how many bits they have.

    Signed values are moved up by half of their range; ``MONOCHROME1``, where 0 is white, is inverted. Windows and
    rescaling for the display are not applied: they differ from image to image.

    ``check_size`` is called with width and height before anything is unpacked.
    """
    data = _read(file, where)
    rows, columns = (int(data.get(name) or 0) for name in ("Rows", "Columns"))
    frames = int(data.get("NumberOfFrames") or 1)
    kind, bits = str(data.get("PhotometricInterpretation", "")), int(data.get("BitsStored") or 0)
    if not rows or not columns:
        raise UsageError(f"The DICOM file {where} holds no image: remove it.")
    if frames > 1:
        raise UsageError(f"The DICOM file {where} holds {frames} frames: save each as a file of its own.")
    if kind == "PALETTE COLOR" or not 1 <= bits <= 16:
        raise UsageError(f"The DICOM file {where} holds {bits}-bit {kind} pixels: convert it to PNG or TIFF.")
    check_size(columns, rows)
    # Colour in YBR is converted to RGB.
    values = _pydicom("pixels").pixel_array(data)
    if values.ndim == 3 and bits != 8:
        raise UsageError(f"The DICOM file {where} holds colour of {bits} bits: convert it to 8 bits.")
    if data.get("PixelRepresentation") == 1:
        values = values.astype(np.int32) + 2 ** (bits - 1)
    if kind == "MONOCHROME1":
        values = 2**bits - 1 - values.astype(np.int32)
    return values.astype(np.uint8 if bits == 8 else np.uint16), bits


def dicom_value(file: Path, keyword: str) -> str | None:
    """Read one entry of the header, such as ``PatientID``; None if it is not there."""
    if _pydicom("datadict").tag_for_keyword(keyword) is None:
        raise UsageError(f"DICOM headers have no entry {keyword!r}: name one, such as PatientID.")
    try:
        with open_regular(file) as opened:
            data = _read(opened, printable(file), stop_before_pixels=True, specific_tags=[keyword])
    except UsageError:
        raise
    except Exception as error:  # pydicom raises many kinds
        raise UsageError(f"The header of {printable(file)} cannot be read as DICOM: {one_line(error)}.") from None
    value = data.get(keyword)
    return None if value is None else str(value)


def _read(file: BinaryIO, where: str, **options: Any) -> Any:
    # A deflated file is unpacked whole before its size is known: it could take all of the memory.
    reader = _pydicom("filereader")
    reader.read_preamble(file, force=False)
    meta = reader.read_dataset(file, False, True, stop_when=lambda tag, *_: tag.group != _META)
    if meta.get("TransferSyntaxUID") == _DEFLATED:
        raise UsageError(f"The DICOM file {where} is deflated as a whole: save it without that.")
    file.seek(0)
    return reader.dcmread(file, **options)


def _pydicom(module: str) -> Any:
    needed("dicom", "reading DICOM files")
    return importlib.import_module(f"pydicom.{module}")
