# SPDX-License-Identifier: Apache-2.0
"""Storages of model state that stay on the GPU, for one reason after the other. Prints what
spillway.stats()["model_state"] has of them, as one line of JSON per reason."""

import json
import sys

import spillway
import torch
from spillway._load import glue
from torch import nn

BYTES = 4 * 64 * 64
kept = []


def parameter():
    layer = nn.Linear(64, 64, bias=False, device="cuda")
    kept.append(layer)
    return layer.weight


def tiny():
    kept.append(nn.LayerNorm(4, bias=False, device="cuda"))


def sparse():
    layer = nn.Embedding(512, 64, sparse=True, device="cuda")
    layer(torch.arange(256, device="cuda")).sum().backward()
    kept.append(layer)


def address_in_use():
    kept.append(torch.utils.dlpack.to_dlpack(parameter().detach()))


def data_ptr():
    parameter().data_ptr()


def referenced_elsewhere():
    weight = torch.zeros(64, 64, device="cuda")
    kept.append(weight[:2])
    layer = nn.Linear(64, 64, bias=False, device="cuda")
    layer.weight = nn.Parameter(weight)
    kept.append(layer)
    glue().offload_model_state()


def cuda_graph():
    weight = parameter().detach()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept.append(weight * 2)
    kept.append(graph)


def no_host_memory():
    weight = parameter()
    glue().offload_model_state()
    kept.append(weight)


for name in sys.argv[1:]:
    kept.clear()
    globals()[name]()
    state = spillway.stats()["model_state"]
    print("reasons:", json.dumps(state["resident_reasons"]))

sgd = torch.optim.LBFGS([parameter()])
sgd.step(lambda: torch.zeros((), device="cuda"))
print("whole:", json.dumps(spillway.stats()["model_state"]["whole_steps"]))
