/** Prometheus and promtool, from the Debian package `prometheus` or on the path. A server runs on a free port, in a folder that goes with it. */
import { execFile, spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePorts } from './ports.ts'
import { until } from './until.ts'

export const hasPrometheus = ['prometheus', 'promtool'].every(
  (program) => spawnSync(program, ['--version'], { timeout: 20_000 }).status === 0,
)

/** What promtool prints, both streams, and whether it found nothing to object to. */
export function promtool(args: readonly string[], input?: string): Promise<{ isFine: boolean; output: string }> {
  return new Promise((resolve) => {
    const child = execFile('promtool', args, { timeout: 60_000 }, (error, stdout, stderr) =>
      resolve({ isFine: error === null, output: `${stdout}${stderr}` }),
    )
    child.stdin?.end(input ?? '')
  })
}

export type Sample = { labels: Readonly<Record<string, string>>; value: number }

export type Prometheus = AsyncDisposable & {
  /** Evaluates an expression now. */
  query(expression: string): Promise<Sample[]>
}

/** Scrapes the targets every second. */
export async function startPrometheus(targets: readonly string[]): Promise<Prometheus> {
  const folder = mkdtempSync(join(tmpdir(), 'skein-prometheus-'))
  const [port] = (await freePorts(1)) as [number]
  const config = {
    global: { scrape_interval: '1s', scrape_timeout: '1s' },
    scrape_configs: [{ job_name: 'skein', static_configs: [{ targets }] }],
  }
  // YAML includes JSON.
  writeFileSync(join(folder, 'prometheus.yml'), JSON.stringify(config))
  const child = spawn(
    'prometheus',
    [
      `--config.file=${join(folder, 'prometheus.yml')}`,
      `--storage.tsdb.path=${join(folder, 'data')}`,
      `--web.listen-address=127.0.0.1:${port}`,
    ],
    { stdio: ['ignore', 'ignore', 'pipe'] },
  )
  let said = ''
  child.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()))
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()))
  const base = `http://127.0.0.1:${port}`
  await until(
    () => {
      if (child.exitCode !== null) throw new Error(`prometheus ended: ${said}`)
      return fetch(`${base}/-/ready`).then(
        ({ ok }) => ok,
        () => false,
      )
    },
    'Prometheus is ready',
    60_000,
  )
  return {
    async query(expression) {
      const answer = await fetch(`${base}/api/v1/query?${new URLSearchParams({ query: expression }).toString()}`)
      const body = (await answer.json()) as {
        error?: string
        data?: { result: { metric: Record<string, string>; value: [number, string] }[] }
      }
      if (body.data === undefined) throw new Error(`${expression}: ${body.error}`)
      return body.data.result.map(({ metric, value }) => ({ labels: metric, value: Number(value[1]) }))
    },
    async [Symbol.asyncDispose]() {
      child.kill('SIGTERM')
      await ended
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
    },
  }
}
