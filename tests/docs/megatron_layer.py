"""Before the lines of docs/python.md on Megatron's layers: a session, a process group of one rank, and a layer with the
attributes that Megatron's have."""

import amaxscope
import torch
import torch.distributed

torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
tp_group = torch.distributed.group.WORLD
session = amaxscope.Session(preset="watch", world=amaxscope.Group.from_torch())
module = torch.nn.Linear(8, 8)
module.gather_output = False
