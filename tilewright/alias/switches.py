"""Triton's knobs: views of the environment, where each switch is kept, and of the hooks.

What is set here is seen by child processes too. A switch that nothing here asks for keeps what it
is set to; one that would change the code, and cannot, is only read.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from tilewright import env
from tilewright.codegen.nvidia.toolkit import find_ptxas
from tilewright.errors import UnknownName, Unsupported
from tilewright.runtime.hooks import HookChain, hooks

__all__ = ["FROM_ENVIRONMENT", "GROUPS", "Group", "Tool"]


class _FromEnvironment:
    """What a switch is set to that the environment shall decide, as it does here anyway."""


FROM_ENVIRONMENT = _FromEnvironment()


class Switch(NamedTuple):
    """A variable, what reads it, and for one that cannot be set what to do instead."""

    variable: str
    read: Callable[[], Any]
    instead: str = ""


class Tool(NamedTuple):
    """A program of CUDA's toolkit."""

    path: str
    version: str


class Group:
    """Switches by name, and hooks by the names that `tilewright.runtime.hooks` has for them.

    `scope()` restores all of them, `reset()` takes the variables out of the environment, `copy()`
    has their values of now. A chain of hooks takes a function, or None for none.
    """

    def __init__(
        self, name: str, switches: Mapping[str, Switch], hook_names: Mapping[str, str] | None = None
    ) -> None:
        vars(self)["_name"] = name
        vars(self)["_switches"] = dict(switches)
        vars(self)["_hook_names"] = dict(hook_names or {})

    def __dir__(self) -> list[str]:
        methods = ["copy", "knobs", "reset", "scope"]
        return sorted([*self._switches, *self._hook_names, *methods])

    def __getattr__(self, name: str) -> Any:
        if name in self._hook_names:
            return getattr(hooks, self._hook_names[name])
        return self._switch(name).read()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._hook_names:
            _set_hook(self._hook_names[name], value)
            return
        switch = self._switch(name)
        if value is FROM_ENVIRONMENT:
            return
        if switch.instead and value:
            raise Unsupported(
                f"`triton.knobs.{self._name}.{name}` cannot be {value!r}", hint=switch.instead
            )
        if value is None:
            os.environ.pop(switch.variable, None)
        else:
            text = str(int(value)) if isinstance(value, bool) else str(value)
            os.environ[switch.variable] = text

    def __delattr__(self, name: str) -> None:
        os.environ.pop(self._switch(name).variable, None)

    @property
    def knobs(self) -> dict[str, Any]:
        """The values of all switches by name."""
        return {name: switch.read() for name, switch in self._switches.items()}

    def copy(self) -> SimpleNamespace:
        """Return the values of now; changing them changes nothing else."""
        return SimpleNamespace(**self.knobs)

    def reset(self) -> Group:
        """Put all switches to what they are by default."""
        for name in self._switches:
            delattr(self, name)
        return self

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Put all switches and hooks of the group back at the end of a block."""
        variables = [switch.variable for switch in self._switches.values()]
        before = {variable: os.environ.get(variable) for variable in variables}
        called = {name: _hook(name) for name in self._hook_names.values()}
        try:
            yield
        finally:
            for variable, text in before.items():
                if text is None:
                    os.environ.pop(variable, None)
                else:
                    os.environ[variable] = text
            for name, hook in called.items():
                _set_hook(name, hook)

    def _switch(self, name: str) -> Switch:
        if name not in self._switches:
            known = [*self._switches, *self._hook_names]
            raise UnknownName(
                f"`triton.knobs.{self._name}.{name}`: Tilewright has no such switch",
                hint=f"there are {', '.join(f'`{n}`' for n in known)}",
            )
        found: Switch = self._switches[name]
        return found


def _hook(name: str) -> Any:
    found = getattr(hooks, name)
    return list(found.calls) if isinstance(found, HookChain) else found


def _set_hook(name: str, value: Any) -> None:
    chain = getattr(hooks, name)
    if not isinstance(chain, HookChain):
        setattr(hooks, name, value)
    elif value is not chain:
        calls = value.calls if isinstance(value, HookChain) else value
        chain.replace(*(calls if isinstance(calls, list) else () if calls is None else (calls,)))


# ---- what reads a variable that the rest of Tilewright does not ask for ----------------------


def _flag(variable: str, default: bool = False, instead: str = "") -> Switch:
    def read() -> bool:
        text = os.environ.get(variable, "").lower()
        return text in {"1", "true", "on", "yes"} if text else default

    return Switch(variable, read, instead)


def _text(variable: str, default: str | None = None, instead: str = "") -> Switch:
    return Switch(variable, lambda: os.environ.get(variable) or default, instead)


def _number(variable: str, default: int) -> Switch:
    return Switch(variable, lambda: int(os.environ.get(variable) or default))


def _directory(variable: str, name: str, instead: str = "") -> Switch:
    def read() -> str:
        home = os.environ.get("TRITON_HOME") or "~"
        given = os.environ.get(variable)
        return given or str(Path(home).expanduser() / ".triton" / name)

    return Switch(variable, read, instead)


def _tool(name: str, find: Callable[[], str | None] | None = None) -> Switch:
    variable = f"TRITON_{name.upper().replace('-', '_')}_PATH"

    def read() -> Tool:
        path = os.environ.get(variable) or (find() if find else shutil.which(name))
        if not path:
            raise Unsupported(f"there is no `{name}` here", hint="install a CUDA toolkit")
        try:
            said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)  # noqa: S603
        except (OSError, subprocess.CalledProcessError) as error:
            raise Unsupported(
                f"{path} cannot be run: {error}", hint=f"let {variable} name a program that can"
            ) from error
        found = re.search(r"release (\d+\.\d+)", said.stdout)
        return Tool(path, found[1] if found else "")

    return Switch(variable, read)


_ALWAYS_FROM_KERNELS = "name one file for one launch: `kernel[grid](..., ir_override=path)`"
_FIND_ACCESSES = (
    "`tilewright.emulate(..., races=True)` and `kernel.debug[grid](...)` find wrong accesses"
)
_NO_REMOTE_CACHE = "let several machines share TILEWRIGHT_CACHE_DIR: the cache is safe for that"

GROUPS = {
    "autotuning": Group(
        "autotuning",
        {
            "cache": Switch("TRITON_CACHE_AUTOTUNING", env.cache_autotuning),
            "print": Switch("TRITON_PRINT_AUTOTUNING", env.print_autotuning),
        },
        {"listener": "autotuning_listener"},
    ),
    "build": Group(
        "build",
        {
            "cc": _text("CC"),
            "cudacrt_path": _text("TRITON_CUDACRT_PATH"),
            "cudart_path": _text("TRITON_CUDART_PATH"),
            "impl": Switch("", lambda: None, "leave it out: no C compiler is called"),
        },
    ),
    "cache": Group(
        "cache",
        {
            "home_dir": Switch(
                "TRITON_HOME", lambda: os.environ.get("TRITON_HOME") or str(Path.home())
            ),
            "dir": Switch("TILEWRIGHT_CACHE_DIR", lambda: str(env.cache_directory())),
            "dump_dir": _directory("TRITON_DUMP_DIR", "dump"),
            "override_dir": _directory("TRITON_OVERRIDE_DIR", "override", _ALWAYS_FROM_KERNELS),
            "manager_class": Switch("TRITON_CACHE_MANAGER", lambda: env.cache_manager() or None),
            "remote_manager_class": _text("TRITON_REMOTE_CACHE_BACKEND", instead=_NO_REMOTE_CACHE),
        },
    ),
    "compilation": Group(
        "compilation",
        {
            "override": _flag("TRITON_KERNEL_OVERRIDE", instead=_ALWAYS_FROM_KERNELS),
            "dump_ir": _flag("TRITON_KERNEL_DUMP"),
            "dump_ir_extract_di_local_variables": _flag("LLVM_EXTRACT_DI_LOCAL_VARIABLES"),
            "store_binary_only": _flag("TRITON_STORE_BINARY_ONLY"),
            "always_compile": Switch("TRITON_ALWAYS_COMPILE", env.always_compile),
            "use_ir_loc": _text(
                "USE_IR_LOC", instead="leave it out: lines are always those of the kernel"
            ),
            "enable_asan": _flag("TRITON_ENABLE_ASAN", instead=_FIND_ACCESSES),
            "disable_line_info": Switch(
                "TRITON_DISABLE_LINE_INFO", lambda: not env.has_line_numbers()
            ),
            "front_end_debugging": Switch("TRITON_FRONT_END_DEBUGGING", env.shows_all_frames),
            "allow_non_constexpr_globals": Switch(
                "TRITON_ALLOW_NON_CONSTEXPR_GLOBALS", env.reads_ordinary_globals
            ),
            "instrumentation_mode": _text("TRITON_INSTRUMENTATION_MODE", "", _FIND_ACCESSES),
        },
        {"listener": "compilation_listener"},
    ),
    "language": Group(
        "language",
        {
            "fp32_default": _text("TRITON_F32_DEFAULT"),
            "default_fp_fusion": Switch("TRITON_DEFAULT_FP_FUSION", env.fuses_products),
        },
    ),
    "nvidia": Group(
        "nvidia",
        {
            "cuobjdump": _tool("cuobjdump"),
            "nvdisasm": _tool("nvdisasm"),
            "ptxas": _tool("ptxas", find_ptxas),
            "ptxas_blackwell": _tool("ptxas-blackwell", find_ptxas),
            "dump_nvptx": Switch("NVPTX_ENABLE_DUMP", env.shows_ptx),
            "disable_ptxas_opt": _flag("DISABLE_PTXAS_OPT"),
            "ptxas_options": _text("PTXAS_OPTIONS"),
            "mock_ptx_version": _text(
                "TRITON_MOCK_PTX_VERSION",
                instead="leave it out: the PTX is of the version that its instructions need",
            ),
            "dump_ptxas_log": Switch("TRITON_DUMP_PTXAS_LOG", env.shows_assembler),
            "libdevice_path": Switch("TRITON_LIBDEVICE_PATH", lambda: env.libdevice_path() or None),
            "libcuda_path": Switch("TRITON_LIBCUDA_PATH", lambda: env.cuda_directory() or None),
        },
    ),
    "runtime": Group(
        "runtime",
        {
            "debug": Switch("TRITON_DEBUG", env.device_debug),
            "interpret": Switch("TRITON_INTERPRET", env.interpret),
            "override_arch": _text(
                "TRITON_OVERRIDE_ARCH",
                instead="compile for a GPU that is written down: "
                "`triton.compile(source, target=GPUTarget(...))`",
            ),
        },
        {
            name: name
            for name in vars(hooks)
            if name not in {"compilation_listener", "autotuning_listener"}
        },
    ),
    # Of what there is not: GPUs of AMD, the profiler, a cache on a server.
    "amd": Group(
        "amd",
        {
            "use_buffer_ops": _flag("AMDGCN_USE_BUFFER_OPS", True),
            "use_buffer_atomics": _flag("AMDGCN_USE_BUFFER_ATOMICS", True),
            "buffer_ops_analyze_small_tensor_range": _flag("AMDGCN_ANALYZE_SMALL_TENSOR_RANGE"),
            "dump_amdgcn": _flag("AMDGCN_ENABLE_DUMP"),
            "libhip_path": _text("TRITON_LIBHIP_PATH"),
            "use_block_pingpong": _text("TRITON_HIP_USE_BLOCK_PINGPONG"),
            "use_in_thread_transpose": _text("TRITON_HIP_USE_IN_THREAD_TRANSPOSE"),
            "use_async_copy": _flag("TRITON_HIP_USE_ASYNC_COPY"),
            "scalarize_packed_fops": _flag("AMDGCN_SCALARIZE_PACKED_FOPS"),
            "dump_mir": _text("TRITON_DUMP_MIR"),
            "swap_mir": _text("TRITON_SWAP_MIR"),
        },
    ),
    "proton": Group(
        "proton",
        {
            "disable": _flag("TRITON_PROTON_DISABLE"),
            "cupti_lib_dir": _text("TRITON_CUPTI_LIB_PATH"),
            "enable_nvtx": _flag("TRITON_ENABLE_NVTX", True),
            "profile_buffer_size": _text("TRITON_PROFILE_BUFFER_SIZE"),
        },
    ),
    "redis": Group(
        "redis",
        {
            "key_format": _text("TRITON_REDIS_KEY_FORMAT", "triton:{key}:{filename}"),
            "host": _text("TRITON_REDIS_HOST", "localhost"),
            "port": _number("TRITON_REDIS_PORT", 6379),
        },
    ),
}
