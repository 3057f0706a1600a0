/** `skein history`: the copy of records for other engines. */
import type { Cli, Group } from '../shared/command.ts'
import { CommandError, UsageError } from '../shared/failures.ts'
import { oneLine } from '../shared/plain-text.ts'
import { isRecord, plainText } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'

const HISTORY = '/{domain!}/history'
/** A verification counts the records of a week. */
const DEADLINE_MS = 120_000

export const history: Group = {
  name: 'history',
  summary: 'the copy of records for other engines',
  description:
    'Records are copied into an Apache Iceberg table of the domain: docs/guides/history-in-other-engines.md.',
  commands: [
    {
      words: 'status',
      args: '',
      tail: 'domain',
      summary: 'show how much is copied, and what waits',
      example: '',
      call: { method: 'GET', service: 'host', path: HISTORY },
    },
    {
      words: 'verify',
      args: '',
      tail: 'domain',
      summary: 'compare the copy with the database, week by week; what differs is copied again',
      example: '',
      usesDomainId: true,
      run: verify,
    },
  ],
}

async function verify(cli: Cli, given: Given): Promise<void> {
  if (given.domain === undefined) throw new UsageError('a domain is required: use --domain, or skein context domain ID')
  const path = `/${encodeURIComponent(given.domain)}/history/verify`
  const found = { ranges: 0, records: 0, files: 0, faults: [] as string[] }
  for (let after = ''; ;) {
    const { value } = await cli.request({
      method: 'POST',
      service: 'host',
      authorization: 'needed',
      token: given.credential,
      path: after === '' ? path : `${path}?after=${encodeURIComponent(after)}`,
      deadlineMs: DEADLINE_MS,
    })
    const check = isRecord(value) ? value : {}
    found.records += Number(check['records'] ?? 0)
    found.files += Number(check['files'] ?? 0)
    if (Array.isArray(check['faults'])) found.faults.push(...check['faults'].map((fault) => oneLine(String(fault))))
    after = plainText(check['next'])
    if (after === '') break
    found.ranges += 1
  }
  cli.output.event(found, () =>
    [
      ...found.faults,
      `${found.ranges} ranges, ${found.records} records, ${found.files} files, ${found.faults.length} faults`,
    ].join('\n'),
  )
  if (found.faults.length > 0)
    throw new CommandError('the archive differs from the database', 'what differs is copied again within ten minutes')
}
