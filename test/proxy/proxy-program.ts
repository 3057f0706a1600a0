/** `npm run proxy` as a process on a free port, for tests that kill it, look at its memory, or start it with other authorities. */
import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { create } from '@bufbuild/protobuf'
import { credentials } from '@grpc/grpc-js'
import { FetchRequestSchema, ModuleService, createServiceClient, dialPlainly, readByteStream } from '#proto/index.ts'
import { PROXY_TOKEN, asManager } from './running-proxy.ts'

const CALL_DEADLINE_MS = 60_000

/** Resolves when it is ready; rejects when it ends before. */
export async function startProxyProgram(dataDir: string, registry: string, environment: Record<string, string> = {}) {
  const child: ChildProcess = spawn(process.execPath, [join(import.meta.dirname, '../../programs/proxy.ts')], {
    env: {
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
  const client = createServiceClient(ModuleService, address, credentials.createInsecure())
  return {
    pid: child.pid,
    address,
    resolve: (reference: string) =>
      client.resolve({ reference }, { deadlineMs: CALL_DEADLINE_MS, metadata: asManager() }),
    /** As a worker reads a module. */
    read({ digest, reference }: { digest: string; reference: string }, offset: number): AsyncGenerator<Buffer> {
      const request = create(FetchRequestSchema, { digest, reference, offset: BigInt(offset) })
      const [bearer] = asManager().get('authorization')
      const order = { address, dialling: dialPlainly(), method: ModuleService.method.fetch, request }
      return readByteStream({ ...order, authorization: String(bearer) }, AbortSignal.timeout(CALL_DEADLINE_MS))
    },
    /** Resolves, fetches and gives the digest of what came. */
    async bring(reference: string): Promise<string> {
      const found = await client.resolve({ reference }, { deadlineMs: CALL_DEADLINE_MS, metadata: asManager() })
      const stream = client.fetch(
        { digest: found.digest, reference: found.reference },
        { deadlineMs: CALL_DEADLINE_MS, metadata: asManager() },
      )
      const pieces: Uint8Array[] = []
      for await (const { data } of stream as AsyncIterable<{ data: Uint8Array }>) pieces.push(data)
      return `sha256:${createHash('sha256').update(Buffer.concat(pieces)).digest('hex')}`
    },
    async end(signal: NodeJS.Signals): Promise<number | null> {
      client.close()
      child.kill(signal)
      return await exited
    },
  }
}
