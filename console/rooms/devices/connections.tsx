/**
 * Shows who may publish to and subscribe to which channel: a matrix or a graph of the first clients and channels by name, and a filter for
 * both.
 */
import { useQueries, useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useEffect } from 'react'
import { call } from '../../api/call.ts'
import { query } from '../../api/queries.ts'
import { Segments } from '../../design/controls.tsx'
import { Card, Empty, Notice, formatCount } from '../../design/display.tsx'
import { Icon } from '../../design/icon.tsx'
import { paths } from '../../paths.ts'
import { useAction } from '../../shell/action.ts'
import { QueryView } from '../../shell/states.tsx'
import { useRowHeight } from '../../shell/table.tsx'
import { useDomainId, useView, useViews } from '../../shell/url.ts'
import { ConnectionGraph } from './connection-graph.tsx'
import type { Pair } from './connection-graph.tsx'

const MAX_CLIENTS = 50
const MAX_CHANNELS = 12
const TYPES = ['publish', 'subscribe'] as const
type Type = (typeof TYPES)[number]

export function Connections() {
  const domain = useDomainId()
  const params = { domain_id: domain }
  const [views, setViews] = useViews()
  const [shape, setShape] = useView('shape', 'matrix')
  const { rowPx } = useRowHeight()
  const page = { order: 'name', dir: 'asc', status: 'all' } as const
  const clients = useQuery(
    query('GET /{domain_id}/clients', { params, query: { ...page, limit: MAX_CLIENTS, name: views['client'] } }),
  )
  const channels = useQuery(
    query('GET /{domain_id}/channels', { params, query: { ...page, limit: MAX_CHANNELS, name: views['channel'] } }),
  )
  const columns = channels.data?.channels ?? []
  // The clients are asked for by channel and direction.
  const wanted = columns.flatMap(({ id }) => TYPES.map((type) => ({ id, type })))
  const answers = useQueries({
    queries: wanted.map(({ id, type }) =>
      query('GET /{domain_id}/channels/{channel_id}/clients', {
        params: { ...params, channel_id: id },
        query: { ...page, limit: 100, connection_type: type, name: views['client'] },
      }),
    ),
  })
  const pairs = new Set(
    wanted.flatMap(({ id, type }, index) =>
      (answers[index]?.data?.clients ?? []).map((client) => `${client.id} ${id} ${type}`),
    ),
  )
  const [change] = useAction(
    'The connection was not changed',
    async (client: string, channel: string, type: Type, isConnected: boolean) => {
      const body = { client_ids: [client], channel_ids: [channel], types: [type] }
      if (isConnected) await call('POST /{domain_id}/channels/disconnect', { params, body })
      else await call('POST /{domain_id}/channels/connect', { params, body })
    },
  )
  useEffect(() => {
    document.title = 'Connections · Skein'
  }, [])
  const filter = (name: 'client' | 'channel', label: string) => (
    <div className="search">
      <Icon name="search" />
      <input
        className="input"
        type="search"
        {...(name === 'client' ? { 'data-filter': true } : {})}
        placeholder={label}
        aria-label={label}
        value={views[name] ?? ''}
        onChange={(event) => setViews({ [name]: event.target.value })}
      />
    </div>
  )
  return (
    <>
      <div className="page-head">
        <h1 className="grow">Connections</h1>
        <Segments
          label="Shape"
          value={shape}
          onChange={setShape}
          options={[
            ['matrix', 'Matrix'],
            ['graph', 'Graph'],
          ]}
        />
      </div>
      <div className="row wrap">
        {filter('client', 'Clients by name')}
        {filter('channel', 'Channels by name')}
      </div>
      <QueryView result={channels}>
        {(shown) => (
          <QueryView result={clients}>
            {({ clients: rows, total }) =>
              rows.length === 0 || columns.length === 0 ? (
                <Card>
                  <Empty icon="connection" title="Nothing to connect">
                    A connection allows a client to publish to a channel or to subscribe to it. Create a client and a
                    channel, or change the filters.
                  </Empty>
                </Card>
              ) : (
                <>
                  {total > rows.length || shown.total > columns.length ? (
                    <Notice tone="plain">
                      The first {formatCount(rows.length)} of {formatCount(total)} clients and{' '}
                      {formatCount(columns.length)} of {formatCount(shown.total)} channels by name. Filter to see
                      others.
                    </Notice>
                  ) : null}
                  {shape === 'graph' ? (
                    <Card>
                      {pairs.size === 0 ? (
                        <Empty icon="connection" title="No connections">
                          Connect a client to a channel in the matrix.
                        </Empty>
                      ) : (
                        <ConnectionGraph
                          domain={domain}
                          clients={rows}
                          channels={columns}
                          pairs={pairsOf(rows, columns, pairs)}
                          rowPx={rowPx}
                        />
                      )}
                    </Card>
                  ) : (
                    <Card flush>
                      <div className="scroll-x" tabIndex={0} role="region" aria-label="Connections">
                        <table className="plain">
                          <thead>
                            <tr>
                              <th>Client</th>
                              {columns.map(({ id, name }) => (
                                <th key={id}>
                                  <Link to={paths.channel(domain, id)}>{name === '' ? id.slice(0, 8) : name}</Link>
                                </th>
                              ))}
                            </tr>
                          </thead>
                          <tbody>
                            {rows.map((client) => (
                              <tr key={client.id}>
                                <th scope="row">
                                  <Link to={paths.client(domain, client.id)}>
                                    {client.name === '' ? client.id.slice(0, 8) : client.name}
                                  </Link>
                                </th>
                                {columns.map((channel) => (
                                  <td key={channel.id}>
                                    <div
                                      className="segments"
                                      role="group"
                                      aria-label={`${client.name} and ${channel.name}`}
                                    >
                                      {TYPES.map((type) => {
                                        const isConnected = pairs.has(`${client.id} ${channel.id} ${type}`)
                                        return (
                                          <button
                                            key={type}
                                            type="button"
                                            aria-pressed={isConnected}
                                            onClick={() => void change(client.id, channel.id, type, isConnected)}
                                          >
                                            {isConnected ? '✓ ' : ''}
                                            {type === 'publish' ? 'pub' : 'sub'}
                                            <span className="visually-hidden">{` ${client.name}, ${channel.name}`}</span>
                                          </button>
                                        )
                                      })}
                                    </div>
                                  </td>
                                ))}
                              </tr>
                            ))}
                          </tbody>
                        </table>
                      </div>
                    </Card>
                  )}
                </>
              )
            }
          </QueryView>
        )}
      </QueryView>
    </>
  )
}

type Named = { id: string; name: string }

/** `pairs`: client, channel and direction. */
function pairsOf(clients: readonly Named[], channels: readonly Named[], pairs: ReadonlySet<string>): Pair[] {
  return clients.flatMap(({ id: client }) =>
    channels.flatMap(({ id: channel }) => {
      const [publishes, subscribes] = TYPES.map((type) => pairs.has(`${client} ${channel} ${type}`))
      return publishes === true || subscribes === true
        ? [{ client, channel, publishes: publishes === true, subscribes: subscribes === true }]
        : []
    }),
  )
}
