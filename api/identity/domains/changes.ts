/** The journal entry of a changed domain: the changed fields, before and after (contract section 10). */
import { isDeepStrictEqual } from 'node:util'
import type { Recorder } from '../journal/index.ts'
import type { DomainRecord } from './record.ts'

const FIELDS = {
  name: 'name',
  alias: 'route',
  route: 'route',
  tags: 'tags',
  metadata: 'metadata',
  retention_days: 'retentionDays',
  alarm_retention_days: 'alarmRetentionDays',
  status: 'status',
} as const satisfies Record<string, keyof DomainRecord>

export function recordDomainChange(
  record: Recorder,
  operation: string,
  before: DomainRecord,
  after: DomainRecord,
): void {
  const changed = Object.entries(FIELDS).filter(([, field]) => !isDeepStrictEqual(before[field], after[field]))
  const facts = (domain: DomainRecord) => Object.fromEntries(changed.map(([name, field]) => [name, domain[field]]))
  record({
    operation,
    domainKey: after.key,
    entityKeys: [after.key],
    attributes: { id: after.id, before: facts(before), after: facts(after) },
  })
}
