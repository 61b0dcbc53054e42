"""A member of a fleet that locks by redis-py: see fleettest.Script."""
import json
import os
import random
import sys
import threading
import time

import redis

me = json.loads(os.environ["ONERUN_FLEET_MEMBER"])


def connect(addr):
    host, port = addr.rsplit(":", 1)
    return redis.Redis(host=host, port=int(port))


server, witness = connect(me["Addrs"][0]), connect(me["Witness"])
enter, leave = witness.register_script(me["Enter"]), witness.register_script(me["Leave"])
stopped = threading.Event()


def read_input():
    sys.stdin.readline()
    stopped.set()


def stay(name):
    enter(keys=me["Keys"], args=[me["ID"], me["Kind"], name, 0])
    time.sleep(random.random() * me["Hold"] / 1000)
    known, overlaps = 0, int(leave(keys=me["Keys"][:4], args=[me["ID"], name, 0]))
    while overlaps != known:
        known = overlaps
        overlaps = int(leave(keys=me["Keys"][:4], args=[me["ID"], name, known]))


threading.Thread(target=read_input, daemon=True).start()
print("ready", flush=True)
n = 0
while not stopped.is_set():
    n += 1
    lock = server.lock(os.environ["FLEET_LOCK"], timeout=me["TTL"] / 1000, sleep=0.01)
    if lock.acquire(blocking_timeout=me["Patience"] / 1000):
        stay("%s#%d" % (me["ID"], n))
        try:
            lock.release()
        except redis.exceptions.LockNotOwnedError:
            pass  # it has overrun its lock
    time.sleep(random.random() * me["Pause"] / 1000)
