"""The command `inferack-adapter-proxy`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from typing import Optional

from aiohttp import web

from . import __version__, systemd
from .config import ConfigFault, Loaded, load
from .logs import Redactor, set_up
from .server import Proxy

_log = logging.getLogger("inferack_adapter_proxy")


def arguments(argv: Optional[list[str]] = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="inferack-adapter-proxy", description="One API in front of inference engines.")
    parser.add_argument("--config", required=True, help="YAML or JSON file; it holds no keys")
    parser.add_argument(
        "--secrets", help="JSON file with the engines' keys, mode 0600 (else secrets.json in $CREDENTIALS_DIRECTORY)"
    )
    parser.add_argument("--listen", metavar="HOST:PORT", help="overrides the configuration's listen")
    parser.add_argument("--check-config", action="store_true", help="check the files only: exit 0 when they are usable, else 1")
    parser.add_argument("--release", default="", help="a label that /healthz repeats")
    parser.add_argument("--version", action="version", version=__version__)
    return parser.parse_args(argv)


def address(listen: Optional[str], loaded: Loaded) -> tuple[str, int]:
    """Where to listen. Raises ConfigFault."""
    if not listen:
        return loaded.config.listen.host, loaded.config.listen.port
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise ConfigFault(f"--listen: expected HOST:PORT, found {listen!r}")
    return host, int(port)


async def serve(options: argparse.Namespace, loaded: Loaded, redact: Redactor) -> None:
    """Run until SIGTERM or SIGINT; read the configuration anew on SIGHUP."""
    host, port = address(options.listen, loaded)
    proxy = Proxy(loaded, redact, options.release)
    # A caller that leaves cancels the handler, and that cancels the engine's work.
    runner = web.AppRunner(proxy.application(), handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    seconds = systemd.watchdog_s()
    # Until the very end: a drain may take longer than systemd waits for a sign of life.
    alive = None if seconds is None else asyncio.create_task(systemd.keep_alive(seconds))
    try:
        site = web.TCPSite(runner, host, port, backlog=1024, reuse_address=True)
        await site.start()
        host, port = runner.addresses[0][:2]
        _log.info("listening", extra={"fields": {"event": "started", "host": host, "port": port, "version": __version__}})
        await _until_stopped(options, proxy)
        await site.stop()
        await proxy.drain()
    finally:
        await runner.cleanup()
        if alive is not None:
            alive.cancel()


async def _until_stopped(options: argparse.Namespace, proxy: Proxy) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    reload = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, reload.set)
    reloads = asyncio.create_task(_reloads(options, proxy, reload))
    systemd.notify("READY=1")
    await stop.wait()
    systemd.notify("STOPPING=1")
    _log.info("stopping", extra={"fields": {"event": "stopping"}})
    reloads.cancel()


async def _reloads(options: argparse.Namespace, proxy: Proxy, reload: asyncio.Event) -> None:
    while True:
        await reload.wait()
        reload.clear()
        try:
            loaded = load(options.config, options.secrets)
        except ConfigFault as error:
            fields = {"event": "reload_refused", "why": str(error)}
            _log.error("configuration refused, the old one stays", extra={"fields": fields})
            continue
        await proxy.swap(loaded)
        _log.info("configuration reloaded", extra={"fields": {"event": "reloaded", "config_sha256": loaded.sha256}})


def main(argv: Optional[list[str]] = None) -> int:
    """Entry point. Returns the exit status: 0 after an orderly end, 1 for a configuration that cannot be used."""
    options = arguments(argv)
    redact = Redactor()
    try:
        loaded = load(options.config, options.secrets)
        address(options.listen, loaded)
    except ConfigFault as error:
        sys.stderr.write(f"{error}\n")
        return 1
    redact.know(loaded.keys.values())
    if options.check_config:
        return 0
    set_up(loaded.config.log.level, redact)
    try:
        asyncio.run(serve(options, loaded, redact))
    except OSError as error:
        sys.stderr.write(f"cannot listen: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
