/** What a change would do: changes, and rows by table. */
import type { View } from './table.ts'
import { isRecord } from './values.ts'

export const DRY_RUN_VIEW: View = {
  columns: ['operation', 'id', 'name', 'table', 'created', 'updated', 'deleted', 'exact'],
}

type Rows = { table: string; created: number; updated: number; deleted: number }
type Report = { total: number; hidden?: number; changes: unknown[]; rows: Rows[] }

/** The report on a file that is sent with several requests. */
export function joinReports(answers: readonly unknown[]): Report {
  const joined: Report = { total: 0, changes: [], rows: [] }
  for (const report of answers.filter(isRecord) as unknown as Report[]) {
    joined.total += report.total
    if (report.hidden !== undefined) joined.hidden = (joined.hidden ?? 0) + report.hidden
    joined.changes.push(...report.changes)
    for (const rows of report.rows) {
      const known = joined.rows.find(({ table }) => table === rows.table)
      if (known === undefined) joined.rows.push({ ...rows })
      else for (const count of ['created', 'updated', 'deleted'] as const) known[count] += rows[count]
    }
  }
  return joined
}

/** Undefined when every change is shown. */
export function hiddenHint(report: unknown): string | undefined {
  const hidden = isRecord(report) ? report['hidden'] : undefined
  return typeof hidden === 'number' ? `${hidden} changes of entities that you may not read are not shown` : undefined
}
