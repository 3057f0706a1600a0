/** Task manager section 6, rule 8: a module of 64 MiB passes through a worker that does not grow by it. */
import { spawn } from 'node:child_process'
import { chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { COMPILE_CACHE } from '../harness/compile-cache.ts'
import { wasmOf } from '../proxy/misbehaving-registry.ts'
import { digestOf, until } from './pool.ts'
import { JOIN_TOKEN, ScriptedManager } from './scripted-manager.ts'

const MIB = 1024 * 1024
const MAX_GROWTH_BYTES = 16 * MIB

/** The most memory that a process ever had resident (proc(5), VmHWM). */
function peakBytes(pid: number | undefined): number {
  return Number(/^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) * 1024
}

test.runIf(process.platform === 'linux')(
  'a module of 64 MiB increases the memory of a worker by less than 16 MiB during its download',
  async () => {
    const folder = mkdtempSync(join(tmpdir(), 'skein-worker-'))
    // Runner processes have users of their own: in a closed folder the modules would be kept elsewhere.
    chmodSync(folder, 0o755)
    await using manager = await ScriptedManager.start()
    manager.heartbeatIntervalMs = 500
    // Made before the worker waits for anything of this process.
    const named = (bytes: Uint8Array) => ({ bytes, digest: digestOf(bytes) })
    const [small, large] = [named(wasmOf(MIB, 2)), named(wasmOf(64 * MIB))]
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
    const fetch = async ({ bytes, digest }: { bytes: Uint8Array; digest: string }) => {
      manager.modules.set(digest, bytes)
      const module = { digest, sizeBytes: BigInt(bytes.length), sourceAddress: manager.proxyAddress, reference: '' }
      manager.tell({ case: 'prefetch', value: { modules: [module] } })
      await until(() => manager.heard('heartbeat').some((beat) => beat.cachedDigestsAdded.includes(digest)), 30_000)
    }
    try {
      await until(() => manager.heard('heartbeat').length > 0, 30_000)
      await fetch(small)
      const before = peakBytes(child.pid)
      await fetch(large)
      expect(peakBytes(child.pid) - before).toBeLessThan(MAX_GROWTH_BYTES)
    } finally {
      child.kill()
      await exited
      rmSync(folder, { recursive: true, force: true })
    }
  },
  120_000,
)
