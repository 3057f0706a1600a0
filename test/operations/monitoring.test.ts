/** The files of deploy/monitoring and what programs show: rules and panels name metrics that exist, and promtool accepts all of it. */
import { globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { PROGRAM_METRICS, declarationsOf } from '../../tools/generate/metrics-table.ts'
import { hasPrometheus, promtool } from '../harness/prometheus.ts'
import { until } from '../harness/until.ts'
import { createInstallation, launch } from '../harness/whole.ts'
import type { Installation } from '../harness/whole.ts'
import { MONITORING, ROOT, panelExpressions, readAlerts, readDashboards } from './monitoring-files.ts'

const declared = new Map(declarationsOf(PROGRAM_METRICS['start'] ?? []).map((one) => [one.name, one]))
/** Of prom-client, Prometheus itself, and what a scrape adds. */
const FOREIGN = new Set([
  'ALERTS',
  'up',
  'process_start_time_seconds',
  'process_cpu_seconds_total',
  'process_resident_memory_bytes',
  'nodejs_eventloop_lag_p99_seconds',
])
const LABELS_OF_A_SCRAPE = ['instance', 'job', 'le']
const METRIC = /\b(?:up|ALERTS|(?:skein|db|process|nodejs)_[a-z0-9_]+)\b(?:\{([^}]*)\})?/g

type Use = { name: string; labels: string[] }

function usesOf(expr: string): Use[] {
  const byClauses = /\b(?:by|without|on) \([^)]*\)/g
  return [...expr.replaceAll(byClauses, '').matchAll(METRIC)].map(([text, matchers = '']) => ({
    name: text.split('{')[0] ?? '',
    labels: [...matchers.matchAll(/([a-z_]+)(?:=~|!~|!=|=)/g)].map(([, label]) => label ?? ''),
  }))
}

function declarationOf(name: string) {
  const base = name.replace(/_(bucket|sum|count)$/, '')
  return declared.get(name) ?? (declared.get(base)?.type === 'histogram' ? declared.get(base) : undefined)
}

const expressions = [...readAlerts().map(({ alert, expr }) => ({ where: alert, expr })), ...panelExpressions()]

describe('rules and dashboards', () => {
  test('name metrics that are declared, with labels that they have', () => {
    const uses = expressions.flatMap(({ where, expr }) => usesOf(expr).map((use) => ({ where, ...use })))
    expect(uses.length).toBeGreaterThan(80)
    const wrong = uses.flatMap(({ where, name, labels }) => {
      if (FOREIGN.has(name)) return []
      const declaration = declarationOf(name)
      if (declaration === undefined) return [`${where} names ${name}, which no program declares`]
      const known = [...Object.keys(declaration.labels), ...LABELS_OF_A_SCRAPE]
      return labels.filter((label) => !known.includes(label)).map((label) => `${where}: ${name} has no label ${label}`)
    })
    expect(wrong).toEqual([])
  })

  test('every alert contains a remedy and has a section of the guide; every section has an alert', () => {
    const guide = readFileSync(join(ROOT, 'docs/guides/monitor.md'), 'utf8')
    const sections = [...guide.matchAll(/^### (\w+)$/gm)].map(([, name]) => name)
    const alerts = readAlerts()
    expect(alerts.map(({ alert }) => alert)).toEqual(sections)
    for (const { alert, labels, annotations } of alerts) {
      expect(['page', 'ticket'], alert).toContain(labels.severity)
      expect(annotations.runbook, alert).toBe(`docs/guides/monitor.md#${alert.toLowerCase()}`)
      expect(annotations.summary.length, alert).toBeGreaterThan(15)
      expect(annotations.description.length, alert).toBeGreaterThan(40)
    }
  })

  test('panels of a dashboard have their own place and number', () => {
    const dashboards = readDashboards()
    expect(dashboards.map(({ uid }) => uid).toSorted()).toEqual(['skein-overview', 'skein-platform', 'skein-tasks'])
    for (const { path, panels } of dashboards) {
      expect(new Set(panels.map(({ id }) => id)).size, path).toBe(panels.length)
      const cells = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
        Array.from({ length: w * h }, (_, at) => `${x + (at % w)} ${y + Math.floor(at / w)}`),
      )
      expect(new Set(cells).size, `${path}: panels overlap`).toBe(cells.length)
      expect(
        panels.every(({ gridPos: { x, w } }) => x + w <= 24),
        path,
      ).toBe(true)
    }
  })
})

test.runIf(process.env['CI'] === 'true')('Prometheus is installed where tests decide', () => {
  expect(hasPrometheus).toBe(true)
})

describe.skipIf(!hasPrometheus)('promtool (needs the Debian package prometheus)', () => {
  test('accepts the configuration and the rules', async () => {
    expect(
      await promtool(['check', 'config', '--lint=all', '--lint-fatal', join(MONITORING, 'prometheus.yml')]),
    ).toMatchObject({
      isFine: true,
    })
  })

  test('accepts every expression of the dashboards', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'skein-panels-'))
    const rules = panelExpressions().map(({ expr }, at) => ({
      record: `panel:${at}`,
      // A window that Grafana puts in.
      expr: expr.replaceAll('$__rate_interval', '5m'),
    }))
    writeFileSync(join(folder, 'panels.yml'), JSON.stringify({ groups: [{ name: 'panels', rules }] }))
    const checked = await promtool(['check', 'rules', join(folder, 'panels.yml')])
    rmSync(folder, { recursive: true })
    expect(checked).toMatchObject({ isFine: true })
  })

  test.each(globSync('*.rules-test.yml', { cwd: import.meta.dirname }))(
    '%s: rules fire when they should',
    async (file) => {
      const { isFine, output } = await promtool(['test', 'rules', join(import.meta.dirname, file)])
      expect(isFine, output).toBe(true)
    },
  )
})

/** promtool warns of names that prom-client gives to metrics of Node. */
const OF_PROM_CLIENT = /^nodejs_/

describe.each([
  ['start', 'programs/all.ts', 'SKEIN_HTTP_PORT'],
  ['api', 'programs/api.ts', 'SKEIN_HTTP_PORT'],
  ['manager', 'programs/manager.ts', 'SKEIN_MANAGER_HTTP_PORT'],
  ['proxy', 'programs/proxy.ts', 'SKEIN_PROXY_PORT'],
])('npm run %s', (program, file, portSetting) => {
  test('shows what docs/metrics.md says that it shows, in a form that promtool accepts', async () => {
    using installation = await createInstallation()
    const text = await metricsOf(installation, file, portSetting)
    const shown = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)]
      .map(([, name, type]) => `${name} ${type}`)
      .filter((line) => !/^(nodejs|process)_/.test(line))
    const expected = declarationsOf(PROGRAM_METRICS[program] ?? []).map(({ name, type }) => `${name} ${type}`)
    expect(shown.toSorted()).toEqual(expected.toSorted())
    if (!hasPrometheus) return
    const { output } = await promtool(['check', 'metrics'], text)
    expect(output.split('\n').filter((line) => line !== '' && !OF_PROM_CLIENT.test(line))).toEqual([])
  })
})

async function metricsOf(installation: Installation, file: string, portSetting: string): Promise<string> {
  await using program = launch(installation, file)
  let hasEnded = false
  void program.ended.then(() => (hasEnded = true))
  const url = `http://127.0.0.1:${installation.environment[portSetting]}/metrics`
  return await until(
    () => {
      if (hasEnded) throw new Error(`ended while starting: ${program.output()}`)
      return fetch(url).then(
        (answer) => answer.text(),
        () => false as const,
      )
    },
    'metrics',
    120_000,
  )
}
