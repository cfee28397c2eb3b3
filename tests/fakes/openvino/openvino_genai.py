"""Stands in for OpenVINO GenAI: every step adds a token to all requests that have room.

A request has none if it alone takes more than the cache. What a pipeline was made with is printed
as a line of JSON.
"""

import enum
import json

BLOCK_TOKENS = 32
TOKEN = 7


class GenerationStatus(enum.Enum):
    RUNNING = 0
    FINISHED = 1
    IGNORED = 2


class SchedulerConfig:
    num_kv_blocks = 0
    cache_size = 0


class GenerationConfig:

    def __init__(self, max_new_tokens, ignore_eos):
        assert ignore_eos
        self.max_new_tokens = max_new_tokens


class GenerationOutput:

    def __init__(self, generated_ids):
        self.generated_ids = generated_ids


class GenerationHandle:

    def __init__(self, tokens, has_room):
        self.left = tokens
        self.has_room = has_room
        self.status = GenerationStatus.RUNNING
        self.outputs = []

    def can_read(self):
        return bool(self.outputs)

    def read(self):
        return {0: self.outputs.pop(0)}

    def get_status(self):
        return self.status

    def advance(self):
        if not self.has_room:
            self.status = GenerationStatus.IGNORED
            return
        self.outputs.append(GenerationOutput([TOKEN]))
        self.left -= 1
        if self.left == 0:
            self.status = GenerationStatus.FINISHED


class ContinuousBatchingPipeline:

    def __init__(self, model, scheduler_config, device, properties, tokenizer_properties):
        self.scheduler = scheduler_config
        self.properties = properties
        self.handles = []
        self.most_at_once = 0
        print(json.dumps({"model": str(model), "device": device, "properties": properties,
                          "tokenizer_properties": tokenizer_properties,
                          "scheduler": vars(scheduler_config)}), flush=True)

    def add_request(self, number, tensor, config):
        blocks = self.scheduler.num_kv_blocks
        tokens = len(tensor.data[0]) + config.max_new_tokens
        handle = GenerationHandle(config.max_new_tokens,
                                  blocks == 0 or tokens <= blocks * BLOCK_TOKENS)
        self.handles.append(handle)
        return handle

    def step(self):
        running = [each for each in self.handles if each.status == GenerationStatus.RUNNING]
        self.most_at_once = max(self.most_at_once, len(running))
        for handle in running:
            handle.advance()
