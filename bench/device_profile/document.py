# SPDX-License-Identifier: Apache-2.0
"""What was measured as a profile of the emulated GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spillway.settings import CAPABILITIES

from bench.device_profile.mapping import CALL, CALLS, RATES

KINDS = ("half", "attention", "attention_backward")
OTHERS = ("tf32", "single", "double")


@dataclass(frozen=True)
class Shares:
    """What kernels reach of the arithmetic's rate. The best kind of kernel reaches all of it."""

    rate: float  # operations a second in half precision
    product: float
    attention: float
    attention_backward: float

    @classmethod
    def of(cls, measured: dict[str, Any]) -> Shares:
        rate = max(measured[kind] for kind in KINDS)
        return cls(rate, *(measured[kind] / rate for kind in KINDS))

    def with_products_of_a_step(
        self, step_ms: float, predicted_ms: float, predicted_at_half_ms: float
    ) -> Shares:
        """The share of products with which a dry run of a step takes the time that it was measured to take.

        A step's time is a + b / share: the two predictions are those with this share and with half of it.
        Products of a step are of other shapes than the one that was measured alone. Unchanged where the
        step is not limited by its products, or where it would be another machine's: below a tenth, or above
        a tenth more.
        """
        by_products = predicted_at_half_ms - predicted_ms  # b / share
        rest = predicted_ms - by_products
        if by_products <= 0.2 * predicted_ms or step_ms <= rest:
            return self
        share = self.product * by_products / (step_ms - rest)
        if not 0.1 <= share <= 1.1:
            return self
        most = max(share, 1.0)
        return Shares(self.rate * most, share / most, self.attention / most, self.attention_backward / most)


def toml(measured: dict[str, Any], shares: Shares, said: str = "") -> str:
    """`said` is a comment about the shares."""
    latency = max(measured[link]["latency"] for link in ("h2d", "d2h"))
    alone = Shares.of(measured).product
    others = "\n".join(f"{kind} = {_number(measured[kind] / alone)}" for kind in OTHERS)
    comment = "".join(f"# {line}\n" for line in said.splitlines())
    calls = "\n".join(f"{name} = {_number(measured[name])}" for name in (*CALLS, *RATES))
    return f"""\
# Measured by scripts/gpu_check --profile with torch {measured["torch"]}.
name = "{measured["name"]}"
memory = {measured["memory"]}
cuda_context = {max(1, measured["cuda_context"])}
capability = "{_known(measured["capability"])}"
multiprocessors = {measured["multiprocessors"]}

# Bytes per second, and of one copy.
link_h2d = {measured["h2d"]["rate"]:.0f}
link_d2h = {measured["d2h"]["rate"]:.0f}
latency = "{latency * 1e6:.2f}us"

[rates]
# Operations and bytes a second: of the kernels that reach most.
half = {_number(shares.rate)}
{others}
# Assumed: twice as much.
fp8 = {_number(2 * shares.rate)}
int8 = {_number(2 * shares.rate)}
memory = {_number(measured["memory_rate"])}
# What the others reach of the arithmetic's rate.
{comment}product = {shares.product:.4f}
attention = {shares.attention:.4f}
attention_backward = {shares.attention_backward:.4f}
# What copies both ways at once reach of the link's rates.
duplex = {measured["duplex"]:.4f}
# Bytes a second of copies with pageable memory, and what the smallest kernel costs the device and the host.
pageable = {_number(measured["pageable"])}
kernel = {_number(measured["kernel"])}
launch = {_number(measured["launch"])}
# Assumed: bytes a second to other devices, and seconds of calls and waits.
peers = {_number(0.8 * measured["d2h"]["rate"])}
call = {CALL}
hop = 1e-6
# Seconds of calls on virtual memory besides, for each chunk of 2 MiB, and bytes a second of large chunks.
{calls}
"""


def _known(capability: str) -> str:
    """The emulated GPU's next older one, where it does not know this one; the oldest where it is older."""

    def number(text: str) -> tuple[int, ...]:
        return tuple(map(int, text.split(".")))

    older = [known for known in CAPABILITIES if number(known) <= number(capability)]
    return max(older, key=number, default=CAPABILITIES[0])


def _number(value: float) -> str:
    return f"{value:.4e}".replace("e+", "e")
