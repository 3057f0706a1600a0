/** `npm run proxy` as a process on a free port, for tests that kill it, look at its memory, or start it with other authorities. */
import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { COMPILE_CACHE } from '../harness/compile-cache.ts'
import { PROXY_TOKEN, fetchFrom, resolveAt, ticketFor } from './running-proxy.ts'
import { fetchModule } from '../../worker/modules/fetch-module.ts'
import { TransferClient } from '#core/transfer/index.ts'

const CALL_DEADLINE_MS = 60_000

/** Resolves when it is ready; rejects when it ends before. */
export async function startProxyProgram(dataDir: string, registry: string, environment: Record<string, string> = {}) {
  const child: ChildProcess = spawn(process.execPath, [join(import.meta.dirname, '../../programs/proxy.ts')], {
    env: {
      ...COMPILE_CACHE,
      SKEIN_DATA_DIR: dataDir,
      SKEIN_PROXY_PORT: '0',
      SKEIN_PROXY_TOKEN: PROXY_TOKEN,
      PROXY_REGISTRY_URL: registry,
      ...environment,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const exited = new Promise<number | null>((resolve) => child.once('exit', resolve))
  const address = await new Promise<string>((resolve, reject) => {
    void exited.then((code) => reject(new Error(`the proxy exited with ${code} before it was ready`)))
    if (child.stdout === null) return
    createInterface({ input: child.stdout }).on('line', (line) => {
      const { msg, address: bound } = JSON.parse(line) as { msg: string; address?: string }
      if (msg === 'module proxy is ready' && bound !== undefined) resolve(bound)
    })
  })
  const limits = { headersMs: CALL_DEADLINE_MS, stallMs: CALL_DEADLINE_MS }
  const client = new TransferClient({ userAgent: 'test', limits })
  return {
    pid: child.pid,
    address,
    resolve: (reference: string) => resolveAt(address, reference),
    /** As a worker reads a module. */
    read({ digest, reference }: { digest: string; reference: string }, offset: number): AsyncGenerator<Uint8Array> {
      const ticket = ticketFor(digest, reference)
      const wanted = { digest, reference, ticket, sizeBytes: 0, sourceAddress: address, peers: [] }
      return fetchModule({ client, address, isTls: false, wanted, offset }, AbortSignal.timeout(CALL_DEADLINE_MS))
    },
    /** Resolves, fetches and gives the digest of what came. */
    async bring(reference: string): Promise<string> {
      const found = await resolveAt(address, reference)
      const bytes = await fetchFrom(address, found.digest, found.reference)
      return `sha256:${createHash('sha256').update(bytes).digest('hex')}`
    },
    async end(signal: NodeJS.Signals): Promise<number | null> {
      client.close()
      child.kill(signal)
      return await exited
    },
    /** Also after a failure: vitest waits for a process that holds its output. */
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL')
      await exited
      client.close()
    },
  }
}
