/** Debian's docker-registry as a process on a free port of loopback. */
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { until } from '../harness/until.ts'

export type Registry = AsyncDisposable & { readonly host: string }

export async function startRegistry(): Promise<Registry> {
  const server = createServer()
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`
  await new Promise((resolve) => server.close(resolve))
  const folder = mkdtempSync(join(tmpdir(), 'skein-registry-'))
  const storage = { filesystem: { rootdirectory: join(folder, 'data') } }
  // YAML is a superset of JSON.
  const config = { version: '0.1', log: { level: 'error' }, storage, http: { addr: host } }
  writeFileSync(join(folder, 'config.yml'), JSON.stringify(config))
  const child = spawn('docker-registry', ['serve', join(folder, 'config.yml')], { stdio: 'ignore' })
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()))
  await until(
    () =>
      fetch(`http://${host}/v2/`).then(
        () => true,
        () => false,
      ),
    'docker-registry answers (apt-get install docker-registry)',
  )
  return {
    host,
    async [Symbol.asyncDispose]() {
      child.kill()
      await ended
      rmSync(folder, { recursive: true, force: true })
    },
  }
}
