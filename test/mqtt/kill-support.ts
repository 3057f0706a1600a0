/** A platform that tests kill, beside a PostgreSQL that lives on. */
import { randomBytes } from 'node:crypto'
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { superviseEmbeddedPostgres } from '#postgres/embedded/index.ts'
import { freePorts } from '../harness/ports.ts'
import { until } from '../harness/until.ts'
import { createInstallation, launch } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'

export const DEADLINE_MS = 60_000

export async function startApi(installation: Installation): Promise<Whole> {
  const api = launch(installation, 'programs/api.ts')
  const isHealthy = async () =>
    (await fetch(`${installation.base}/health`, { signal: AbortSignal.timeout(2000) }).catch(() => undefined))?.ok
  await until(async () => (await isHealthy()) === true, 'the platform answers', DEADLINE_MS)
  return api
}

/** What a platform needs before its first start, until the stack ends. */
export async function prepare(stack: AsyncDisposableStack): Promise<{ installation: Installation; port: number }> {
  const [port] = (await freePorts(1)) as [number]
  const folder = mkdtempSync(join(tmpdir(), 'skein-kill-'))
  chmodSync(folder, 0o755)
  stack.defer(() => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }))
  const postgres = await superviseEmbeddedPostgres({
    dataDir: join(folder, 'postgres'),
    log: () => undefined,
    onGiveUp: (error) => process.stdout.write(`${error.message}\n`),
  })
  stack.defer(() => postgres.stop())
  const { host, port: databasePort, user, password, database } = postgres.connection
  const address = `postgres://${user}:${password}@localhost:${databasePort}/${database}?host=${encodeURIComponent(host)}`
  const installation = stack.use(
    await createInstallation({
      SKEIN_MQTT_PORT: String(port),
      SKEIN_DATABASE_URL: address,
      SKEIN_SECRET_KEY: randomBytes(32).toString('base64'),
    }),
  )
  return { installation, port }
}
