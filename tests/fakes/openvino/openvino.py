"""As much of openvino as openvino_server.py needs."""


class Tensor:

    def __init__(self, data):
        self.data = data
