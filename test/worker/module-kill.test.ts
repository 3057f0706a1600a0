/** kill -9 of a worker in the middle of a module: the next start goes on where it stood (task manager section 6, rule 5). */
import { spawn } from 'node:child_process'
import { chmodSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { COMPILE_CACHE } from '../harness/compile-cache.ts'
import { wasmOf } from '../proxy/misbehaving-registry.ts'
import { digestOf, until } from './pool.ts'
import { JOIN_TOKEN, ScriptedManager } from './scripted-manager.ts'

const MIB = 1024 * 1024
const WAIT_MS = 60_000

function startWorker(folder: string, manager: ScriptedManager) {
  const child = spawn(process.execPath, [join(import.meta.dirname, '../../programs/worker.ts')], {
    env: {
      ...COMPILE_CACHE,
      SKEIN_DATA_DIR: folder,
      SKEIN_WORKER_MANAGER: manager.address,
      SKEIN_WORKER_TOKEN: JOIN_TOKEN,
    },
    stdio: 'ignore',
  })
  const exited = new Promise((resolve) => child.once('exit', resolve))
  return {
    async end(signal: NodeJS.Signals): Promise<void> {
      child.kill(signal)
      await exited
    },
  }
}

test('a worker that was killed during a download resumes it', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'skein-worker-'))
  // Runner processes have users of their own: in a closed folder the modules would be kept elsewhere.
  chmodSync(folder, 0o755)
  await using manager = await ScriptedManager.start()
  const bytes = wasmOf(4 * MIB)
  const digest = digestOf(bytes)
  const partPath = join(folder, 'worker/modules', `${digest.replace('sha256:', '')}.part`)
  manager.onFetch = (wanted, response) => {
    if (wanted !== digest || manager.fetches.length > 1) return false
    response.writeHead(200, { 'content-length': bytes.length })
    response.write(bytes.subarray(0, 2 * MIB))
    return true // and then nothing more comes
  }
  manager.modules.set(digest, bytes)
  const order = { digest, sizeBytes: BigInt(bytes.length), sourceAddress: manager.proxyAddress, reference: '' }
  try {
    const killed = startWorker(folder, manager)
    await until(() => manager.heard('hello').length > 0, WAIT_MS)
    manager.tell({ case: 'prefetch', value: { modules: [order] } })
    await until(() => statSync(partPath, { throwIfNoEntry: false })?.size === 2 * MIB, WAIT_MS)
    await killed.end('SIGKILL')
    const before = manager.heard('hello').length
    const next = startWorker(folder, manager)
    await until(() => manager.heard('hello').length > before, WAIT_MS)
    manager.tell({ case: 'prefetch', value: { modules: [order] } })
    const isHere = () => manager.heard('heartbeat').some((beat) => beat.cachedDigestsAdded.includes(digest))
    await until(isHere, WAIT_MS)
    expect(manager.fetches.map(({ offset }) => offset)).toEqual([0, 2 * MIB])
    expect(readdirSync(join(folder, 'worker/modules')).filter((name) => /part|wasm/.test(name))).toEqual([
      `${digest.replace('sha256:', '')}.wasm`,
    ])
    await next.end('SIGTERM')
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}, 240_000)
