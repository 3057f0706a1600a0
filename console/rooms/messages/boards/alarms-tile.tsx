/** The open alarms of the domain, the newest first, as a tile. */
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { query } from '../../../api/queries.ts'
import { Skeleton, State, Time, formatCount } from '../../../design/display.tsx'
import { paths } from '../../../paths.ts'
import { ErrorState } from '../../../shell/states.tsx'
import { AlarmSeverity } from '../alarms/alarms.tsx'
import type { Tile } from './content.ts'

const REFRESH_MS = 15_000
const MAX_SHOWN = 8

export function AlarmsTile({ domain, tile }: { domain: string; tile: Tile }) {
  const text = tile.text.trim()
  const { data, error } = useQuery({
    ...query('GET /{domain_id}/alarms', {
      params: { domain_id: domain },
      query: { status: 'open', limit: MAX_SHOWN, ...(text === '' ? {} : { text }) },
    }),
    refetchInterval: REFRESH_MS,
  })
  if (data === undefined) return error === null ? <Skeleton rows={3} /> : <ErrorState error={error} />
  const more = data.total - data.alarms.length
  return (
    <>
      {data.alarms.length === 0 ? <State tone="ok">No open alarms</State> : null}
      {data.alarms.map((alarm) => (
        <Link key={alarm.id} className="list-row" to={paths.alarm(domain, alarm.id)}>
          <AlarmSeverity alarm={alarm} />
          <span className="grow clip" dir="auto">
            {alarm.text}
          </span>
          <span className="muted small clip" dir="auto">
            {alarm.client_name}
          </span>
          <Time at={alarm.last_at} />
        </Link>
      ))}
      {more > 0 ? <Link to={paths.alarms(domain)}>{formatCount(more)} more</Link> : null}
    </>
  )
}
