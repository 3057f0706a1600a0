/** Debian's docker-registry as a process on a free port of loopback. */
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePort } from '../harness/ports.ts'
import { until } from '../harness/until.ts'

export type Registry = AsyncDisposable & { readonly host: string }

export async function startRegistry(): Promise<Registry> {
  const host = `127.0.0.1:${await freePort()}`
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
