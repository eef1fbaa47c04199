"""Interpreted runs with PyTorch's CUDA kernels (Note [Interpreter tier on CUDA]), on an emulated CUDA."""

from __future__ import annotations

import pytest

from tests.emulated_cuda import Run


@pytest.fixture
def run(run_interpreted_on_cuda: Run) -> Run:
    return run_interpreted_on_cuda


def test_first_steps_compile_nothing(run: Run) -> None:
    run("""
    def steps(device):
        torch.manual_seed(0)
        layers = torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 2)
        model = torch.nn.Sequential(*layers).to(device)
        optimizer = torch.optim.AdamW(model.parameters())
        x = torch.arange(12.0).view(3, 4).to(device)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, [p.detach().cpu() for p in model.parameters()]

    expected = steps("cpu")
    log()
    torch.testing.assert_close(steps("pjrt"), expected)
    assert counts() == (3, 0)
    calls = log()
    assert not any(line.startswith(("execute", "synchronize")) for line in calls), calls
    assert sum(line == "kernel 10" for line in calls) >= 60, calls
    assert torch_pjrt.metrics()["calls_on_host"] == 0
    """)


def test_a_program_takes_over(run: Run) -> None:
    run("""
    x, factor = torch.ones(4, 4).to("pjrt"), torch.full((4, 4), 0.25).to("pjrt")
    expected = torch.ones(4, 4)
    for i in range(20000):
        for _ in range(5):
            x = (x @ factor).exp().log()
        expected = expected * 1.0
        x.sum().item()
        if counts()[1]:
            break
    interpreted, compiled = counts()
    assert compiled == 1 and interpreted > 5, counts()
    for _ in range(3):  # an interpreted graph takes its results, which are the plugin's memory
        x = (x @ factor).exp().log()
    torch.testing.assert_close(x.cpu(), expected)
    """)


def test_what_is_written_through_views_and_in_place(run: Run) -> None:
    run("""
    def program(device):
        x = torch.arange(24.0).reshape(4, 6).to(device)
        y = x.t()[1:3]
        y.mul_(2)
        x[0] += y.sum()
        z = x.view(-1)[::5]
        z[1:].neg_()
        bits = x.view(torch.int32).clone()
        torch._foreach_add_([x, z], 1)
        x.unsqueeze(0).expand(3, 4, 6)[1].mul_(0.5)
        return torch.cat([x.flatten(), y.flatten(), z, bits.flatten().float()])

    torch.testing.assert_close(program("pjrt").cpu(), program("cpu"))
    assert counts() == (1, 0)

    x = made_by_kernels([0.0] * 1000)
    for i in range(3):
        torch.pjrt.reset_peak_memory_stats()
        x.add_(1)
        assert x[5].item() == i + 1
        assert torch.pjrt.max_memory_allocated() <= 4000 + 64, torch.pjrt.max_memory_allocated()
    view, before = x[1:3], x.clone()
    torch_pjrt.sync()
    x.mul_(2)
    assert view.tolist() == [6, 6] and before[1].item() == 3
    """)


def test_draws_are_those_of_programs(run: Run) -> None:
    run("""
    def draws():
        torch.manual_seed(3)
        x = torch.ones(5, 7).to("pjrt")
        both = torch.nn.functional.dropout(x, 0.3) + torch.rand(5, 7, device="pjrt")
        return both, torch.bernoulli(x / 2), torch.randint(0, 100, (20,), device="pjrt"), x.clone().normal_(2, 3)

    results = []
    for policy in ("auto", "first"):
        _C.set_compile_policy(policy)
        results.append([t.cpu() for t in draws()])
        if policy == "auto":
            assert counts()[0] >= 1
    for interpreted, compiled in zip(*results):
        torch.testing.assert_close(interpreted, compiled, rtol=1e-6, atol=1e-6)
    """)


def test_a_mistake_reaches_no_kernel(run: Run) -> None:
    """On a GPU it would be a device assertion, after which the process can use it no more."""
    run("""
    x, good, bad = made_by_kernels([1.0, 2, 3, 4]), torch.tensor([1, 3]).to("pjrt"), torch.tensor([1, 9]).to("pjrt")
    table = torch.arange(8.0).view(4, 2).to("pjrt")
    calls = {
        "index_select": lambda i: x.index_select(0, i), "gather": lambda i: x.gather(0, i),
        "index": lambda i: x[i], "index_fill": lambda i: x.index_fill(0, i, 5.0),
        "scatter": lambda i: x.scatter(0, i, 5.0), "embedding": lambda i: torch.nn.functional.embedding(i, table),
        "nll": lambda i: torch.nn.functional.nll_loss(table.log_softmax(0).t(), i),
        "put": lambda i: x.clone().index_put_((i,), torch.ones(2, device="pjrt")),
    }
    for name, call in calls.items():
        assert call(good).isfinite().all().item(), name
        try:
            call(bad).cpu()
        except (IndexError, RuntimeError) as error:
            assert "out of" in str(error), error
        else:
            raise AssertionError(name)
    numbers = torch.tensor([4, 6]).to("pjrt")
    assert (numbers // 2).tolist() == [2, 3]
    try:
        (numbers // torch.tensor([1, 0]).to("pjrt")).cpu()
    except RuntimeError as error:
        assert "ZeroDivisionError" in str(error), error
    else:
        raise AssertionError("no error")
    assert x.tolist() == [1, 2, 3, 4]
    calls = log()
    assert "kernel 10" in calls and "assertion 10" not in calls, calls
    """)


def test_what_a_kernel_refuses_is_a_program(run: Run) -> None:
    run(
        """
    x = made_by_kernels([0.0, 1.0, 2.0])
    before = counts()[1]
    torch.testing.assert_close((x.sinh() * 2).cpu(), torch.tensor([0.0, 1.0, 2.0]).sinh() * 2)
    torch.testing.assert_close((x.sinh() * 3).cpu(), torch.tensor([0.0, 1.0, 2.0]).sinh() * 3)
    assert counts()[1] == before + 1, counts()
    """,
        EMULATED_CUDA_REFUSES="aten::sinh",
    )


def test_programs_and_kernels_are_in_order(run: Run) -> None:
    run(
        """
    x = made_by_kernels([1.0, 2, 3])
    y = x * 2 + 1
    torch_pjrt.sync()
    calls = [line for line in log() if line.split()[0] in ("kernel", "record", "block", "view", "execute", "results")]
    # The plugin waits once for the kernels' stream, and the result's buffer is ready after it.
    assert calls == ["kernel 10", "kernel 10", "record 10", "block 1000", "view 1000"], calls

    _C.set_compile_policy("first")  # a program takes what the kernels made
    z = x + y
    del x, y
    torch_pjrt.sync()
    calls = [line for line in log() if line.split()[0] in ("execute", "results", "free")]
    # PyTorch's stream waits for the program, and then its memory may be freed.
    assert calls[:2] == ["execute 0", "results on 10"], calls
    assert calls.count("free 10") >= 2, calls

    _C.set_compile_policy("auto")  # conversely, the plugin gets its memory back when the stream has passed
    w = z * 2
    del z
    assert w.tolist() == [8, 14, 20]
    calls = [line for line in log() if line.split()[0] in ("results", "kernel", "record", "destroy")]
    assert calls[:3] == ["results on 10", "kernel 10", "record 10"], calls
    """,
        EMULATED_CUDA_FREES="1",
    )


def test_memory_that_the_stream_still_reads_stays(run: Run) -> None:
    run(
        """
    _C.set_compile_policy("first")
    z = torch.ones(3, device="pjrt") + 1
    torch_pjrt.sync()
    _C.set_compile_policy("auto")
    w = z * 2
    del z
    torch_pjrt.sync()
    calls = log()
    assert "kernel 10" in calls
    assert not any(line.startswith("destroy") for line in calls[calls.index("kernel 10"):]), calls
    """,
        EMULATED_CUDA_BUSY="1",
    )


def test_streams_of_several(run: Run) -> None:
    run("""
    x = made_by_kernels([1.0, 2, 3])
    with on_stream(0x20):
        y = x * 2
        torch_pjrt.sync()
    calls = [line for line in log() if line.split()[0] in ("kernel", "record", "block", "view", "results")]
    # The stream waits for stream 10, whose memory it reads, and 10 waits for the reader before it reuses freed memory.
    assert calls == [
        "results on 20", "kernel 20", "record 20", "block 1000", "view 1000", "record 20", "block 10"
    ], calls
    with on_stream(0x20):
        x.add_(1)  # on another stream than its memory's: not in place
        torch_pjrt.sync()
    assert y.tolist() == [2, 4, 6] and x.tolist() == [2, 3, 4]

    z = x * 3
    with on_stream(0x30):  # reports a capture
        try:
            torch_pjrt.sync()
        except RuntimeError as error:
            assert "can't be part of a CUDA graph" in str(error), error
        else:
            raise AssertionError("no error")
    assert z.tolist() == [6, 9, 12]
    """)


def test_compiled_calls_take_what_kernels_made(run: Run) -> None:
    run("""
    double = torch.compile(lambda x: x * 2 + 1, backend="pjrt")
    x = made_by_kernels([1.0, 2, 3])
    double(x)
    log()
    y = double(x)
    calls = [line for line in log() if line.split()[0] in ("execute", "results")]
    assert calls == ["execute 0", "results on 10"], calls
    assert (y + x).tolist() == [4, 7, 10]
    """)


def test_what_grows_needs_no_program_under_first(run: Run) -> None:
    run(
        """
    compiled = []
    for length in range(3, 24):
        on_cpu = torch.arange(float(length))
        both = [(x * 2).exp().cumsum(0).log().cpu() for x in (on_cpu.to("pjrt"), on_cpu)]
        torch.testing.assert_close(*both)
        compiled.append(counts()[1])
    assert compiled[-1] == compiled[4] <= 3, compiled
    """,
        policy="first",
    )


def test_what_has_no_elements_and_no_dimensions(run: Run) -> None:
    run("""
    empty = torch.zeros(0, 3).to("pjrt")
    number = torch.tensor(2.5).to("pjrt")
    assert (empty * 2).cpu().shape == (0, 3) and (empty.sum() + number).item() == 2.5
    both = torch.cat([empty, number.expand(2, 3)]) + number.to(torch.float64)
    assert both.dtype == torch.float32 and both.tolist() == [[5, 5, 5], [5, 5, 5]]
    assert counts()[1] == 0
    """)


def test_ops(run: Run) -> None:
    run(
        """
    from tests.ops import opinfo

    ran = 0
    for name in [name for i, name in enumerate(opinfo.OPS) if i % 16 == 5]:
        op = opinfo.OPS[name]
        if name.startswith("jiterator"):
            continue  # CUDA's own compiler
        for sample in opinfo.samples(op, opinfo.usual_dtype(op), 2):
            if not opinfo.predictable(op, sample):
                continue
            given = opinfo.on_device(sample, name)
            expected = opinfo.on_the_cpu(op)(sample.input, *sample.args, **sample.kwargs)
            result = op(given.input, *given.args, **given.kwargs)
            opinfo.assert_same(opinfo.pytree.tree_map_only(torch.Tensor, lambda t: t.cpu(), result), expected)
            ran += 1
    assert ran > 50 and torch_pjrt.metrics()["graphs_interpreted"] > 50
    """,
        policy="never",
    )


def test_products_of_float8_are_programs_where_the_kernel_is_no_cudas(run: Run) -> None:
    """The CPU's kernel, which the emulation would run, gives NaN for values that are too large on processors with
    AMX."""
    run(
        """
    from tests.ops import opinfo

    op, ran = opinfo.OPS["torch._scaled_mm"], 0
    for sample in opinfo.samples(op, opinfo.usual_dtype(op), 3):
        given = opinfo.on_device(sample, op.name)
        expected = opinfo.on_the_cpu(op)(sample.input, *sample.args, **sample.kwargs)
        opinfo.assert_same(op(given.input, *given.args, **given.kwargs).cpu(), expected)
        ran += expected.dtype == torch.float8_e4m3fn and expected.float().abs().max().item() == 448
    assert ran >= 1 and counts()[0] >= 3, (ran, counts())
    """,
        policy="never",
    )
