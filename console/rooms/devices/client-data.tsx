/** What a client published last, and its certificates, on its own page. */
import { useQueries, useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { Answer } from '../../api/call.ts'
import { query } from '../../api/queries.ts'
import { Id } from '../../design/controls.tsx'
import { Card, Empty, Notice, Time, counted, formatValue } from '../../design/display.tsx'
import { paths } from '../../paths.ts'
import { formatChoice } from '../../shell/chosen-series.ts'
import { QueryView } from '../../shell/states.tsx'
import { Validity } from '../../shell/validity.tsx'

const REFRESH_MS = 5_000
/** Channels whose newest values are shown: one request each. */
const MAX_CHANNELS = 5
const MAX_SERIES = 20
const MAX_CERTIFICATES = 10

type Series = Answer<'GET /{domain_id}/channels/{channel_id}/messages/latest'>['messages'][number]

function valueOf({ value, string_value: word, bool_value: flag, data_value: bytes, sum }: Series): string {
  if (value !== undefined) return formatValue(value)
  if (sum !== undefined) return `sum ${formatValue(sum)}`
  return word ?? (flag === undefined ? undefined : String(flag)) ?? bytes ?? ''
}

/** The page of the channel then shows this series alone, and not those of other devices. */
const choiceOf = (publisher: string, { name = '', unit = '', subtopic = '' }: Series) =>
  formatChoice([{ publisher, name, unit, subtopic }])

export function NewestValues({ domain, client }: { domain: string; client: string }) {
  const channels = useQuery(
    query('GET /{domain_id}/clients/{client_id}/channels', {
      params: { domain_id: domain, client_id: client },
      query: { limit: MAX_CHANNELS, connection_type: 'publish', status: 'all' },
    }),
  )
  const known = channels.data?.channels ?? []
  const answers = useQueries({
    queries: known.map(({ id }) => ({
      ...query('GET /{domain_id}/channels/{channel_id}/messages/latest', {
        params: { domain_id: domain, channel_id: id },
        query: { publisher: client, limit: MAX_SERIES },
      }),
      refetchInterval: REFRESH_MS,
    })),
  })
  const refused = answers.find(({ error }) => error !== null)?.error
  const rows = known.flatMap((channel, at) =>
    (answers[at]?.data?.messages ?? []).map((series) => ({ channel, series })),
  )
  const others = (channels.data?.total ?? 0) - known.length
  return (
    <Card title="Newest values" flush className="half">
      <QueryView result={channels} entity={`client:${client}`}>
        {() => (
          <>
            {refused === undefined || refused === null ? null : (
              <Notice tone="warn">Some values cannot be read: {refused.message}.</Notice>
            )}
            {rows.length === 0 && answers.every(({ isPending }) => !isPending) ? (
              <Empty
                icon="channel"
                title="Nothing published yet"
                actions={<Link to={paths.client(domain, client, 'snippets')}>Send the first message</Link>}
              />
            ) : null}
            {rows.map(({ channel, series }) => (
              <Link
                key={`${channel.id} ${series.subtopic ?? ''} ${series.name}`}
                className="list-row"
                to={paths.charts(domain, channel.id, choiceOf(client, series))}
              >
                <div className="grow clip">
                  {series.name}
                  <div className="muted small clip">
                    {channel.name === '' ? channel.id : channel.name}
                    {series.subtopic === undefined || series.subtopic === '' ? '' : ` · ${series.subtopic}`}
                  </div>
                </div>
                <span className="num">
                  {valueOf(series)} <span className="muted">{series.unit}</span>
                </span>
                <span className="muted small">
                  <Time at={series.time === undefined ? undefined : new Date(series.time * 1_000).toISOString()} />
                </span>
              </Link>
            ))}
            {others > 0 ? (
              <Link className="list-row" to={paths.client(domain, client, 'connections')}>
                {counted(others, 'more channel')}
              </Link>
            ) : null}
          </>
        )}
      </QueryView>
    </Card>
  )
}

export function ClientCertificates({ domain, client }: { domain: string; client: string }) {
  const result = useQuery(
    query('GET /{domain_id}/certs', {
      params: { domain_id: domain },
      query: { entity_id: client, limit: MAX_CERTIFICATES },
    }),
  )
  return (
    <Card
      title="Certificates"
      flush
      className="half"
      actions={
        <Link className="small" to={`${paths.certificates(domain, { client })}&create=1`}>
          Issue
        </Link>
      }
    >
      <QueryView result={result} entity={`client:${client}`}>
        {({ certs, total }) => (
          <>
            {certs.length === 0 ? <Empty icon="certificate" title="No certificate" /> : null}
            {certs.map((certificate) => (
              <div key={certificate.serial_number} className="list-row">
                <div className="grow">
                  <Id id={certificate.serial_number} />
                </div>
                <Validity certificate={certificate} />
                <span className="muted small">
                  expires <Time at={certificate.expiry_time} isAhead />
                </span>
              </div>
            ))}
            {total > 0 ? (
              <Link className="list-row" to={paths.certificates(domain, { client })}>
                {total > certs.length ? `All ${counted(total, 'certificate')}` : 'Issue or revoke'}
              </Link>
            ) : null}
          </>
        )}
      </QueryView>
    </Card>
  )
}
