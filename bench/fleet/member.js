// A member of a fleet that locks by a library of Node.js: see fleettest.Script. Its argument is the
// name of the library.
const Redis = require('ioredis');

const me = JSON.parse(process.env.ONERUN_FLEET_MEMBER);
const name = process.env.FLEET_LOCK;
const connect = (addr) => {
  const [host, port] = addr.split(':');
  return new Redis({ host, port: Number(port) });
};
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, Math.random() * ms));

// Each returns a function that acquires the lock and returns how to release it, or null.
const libraries = {
  redlock() {
    const { default: Redlock } = require('redlock');
    const redlock = new Redlock([connect(me.Addrs[0])], { retryCount: 20, retryDelay: 20, retryJitter: 20 });
    redlock.on('error', () => {});
    return async () => {
      const lock = await redlock.acquire([name], me.TTL).catch(() => null);
      return lock && (() => lock.release());
    };
  },
  'redis-semaphore'() {
    const { Mutex } = require('redis-semaphore');
    const redis = connect(me.Addrs[0]);
    return async () => {
      const mutex = new Mutex(redis, name, {
        lockTimeout: me.TTL, acquireTimeout: me.Patience, retryInterval: 10, onLockLost: () => {},
      });
      return (await mutex.tryAcquire()) ? () => mutex.release() : null;
    };
  },
  'node-redisson'() {
    const { Redisson, TimeUnit } = require('node-redisson');
    const [host, port] = me.Addrs[0].split(':');
    const redisson = new Redisson({ redis: { options: { host, port: Number(port) } } });
    return async () => {
      const lock = redisson.getLock(name);
      const held = await lock.tryLock(BigInt(me.Patience), BigInt(me.TTL), TimeUnit.MILLISECONDS);
      return held ? () => lock.unlock() : null;
    };
  },
};

async function stay(witness, id) {
  await witness.eval(me.Enter, me.Keys.length, ...me.Keys, me.ID, me.Kind, id, 0);
  await sleep(me.Hold);
  for (let known = 0; ; ) {
    const n = await witness.eval(me.Leave, 4, ...me.Keys.slice(0, 4), me.ID, id, known);
    if (n === known) return;
    known = n;
  }
}

async function main() {
  const acquire = libraries[process.argv[2]]();
  const witness = connect(me.Witness);
  let stopped = false;
  process.stdin.once('data', () => { stopped = true; });
  process.stdin.once('end', () => { stopped = true; });
  console.log('ready');
  for (let n = 1; !stopped; n++) {
    const release = await acquire();
    if (release) {
      await stay(witness, `${me.ID}#${n}`);
      await release().catch(() => {}); // it may have overrun its lock
    }
    await sleep(me.Pause);
  }
  process.exit(0);
}

main().catch((err) => {
  console.log('fails:', err);
  process.exit(1);
});
