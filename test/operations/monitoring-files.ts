/** What `deploy/monitoring/` holds, as far as tests look at it. */
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse } from 'yaml'

export const ROOT = join(import.meta.dirname, '..', '..')
export const MONITORING = join(ROOT, 'deploy', 'monitoring')

export type AlertRule = {
  alert: string
  expr: string
  for?: string
  labels: { severity: string }
  annotations: { summary: string; description: string; runbook: string }
}

export function readAlerts(): AlertRule[] {
  const text = readFileSync(join(MONITORING, 'alerts.yml'), 'utf8')
  return (parse(text) as { groups: { rules: AlertRule[] }[] }).groups.flatMap(({ rules }) => rules)
}

export function alertNamed(name: string): AlertRule {
  const found = readAlerts().find(({ alert }) => alert === name)
  if (found === undefined) throw new Error(`there is no alert ${name}`)
  return found
}

export type Panel = {
  id: number
  type: string
  title: string
  gridPos: { x: number; y: number; w: number; h: number }
  targets?: { expr: string }[]
}

export type Dashboard = { path: string; uid: string; title: string; panels: Panel[] }

export function readDashboards(): Dashboard[] {
  return globSync('dashboards/*.json', { cwd: MONITORING }).map((path) => ({
    path,
    ...(JSON.parse(readFileSync(join(MONITORING, path), 'utf8')) as Omit<Dashboard, 'path'>),
  }))
}

/** Expressions of the dashboards, with every instance in the place of the variable. */
export function panelExpressions(): { where: string; expr: string }[] {
  return readDashboards().flatMap(({ path, panels }) =>
    panels.flatMap(({ title, targets = [] }) =>
      targets.map(({ expr }) => ({ where: `${path}: ${title}`, expr: expr.replaceAll('$instance', '.*') })),
    ),
  )
}
