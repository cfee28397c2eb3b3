"""As much of numpy as openvino_server.py needs: arrays are the lists that they are made of."""

int64 = "int64"


def array(rows, dtype):
    assert dtype == int64
    return rows
