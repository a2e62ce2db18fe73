"""Processes that are spawned, by DataLoader and by hand, know the device, too."""

import sys

import torch
from torch import multiprocessing
from torch.utils.data import DataLoader, Dataset

device = "cuda" if torch.cuda.is_available() else "cpu"


class Squares(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        assert torch.zeros(1, device=device).device.type == device
        return torch.tensor(float(index)).to(device).square().cpu()


def work(queue):
    queue.put((torch.arange(4.0, device=device) * 2).tolist())


if __name__ == "__main__":
    loader = DataLoader(
        Squares(), batch_size=2, num_workers=1, multiprocessing_context="spawn"
    )
    squares = torch.cat(list(loader))
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    doubled = torch.tensor(queue.get(timeout=120))
    process.join()
    torch.save({"squares": squares, "doubled": doubled}, sys.argv[1])
