/** Clients on the left, channels on the right, a line for each connection. The matrix says the same. */
import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import { paths } from '../../paths.ts'

type Node = { id: string; name: string }
export type Pair = { client: string; channel: string; publishes: boolean; subscribes: boolean }

/** The width of the drawing; the lines are stretched to the space between the columns. */
const WIDTH = 100
/** Lines of one pair that publishes and subscribes, beside each other. */
const BESIDE_PX = 2.5

export function ConnectionGraph({
  domain,
  clients,
  channels,
  pairs,
  rowPx,
}: {
  domain: string
  clients: readonly Node[]
  channels: readonly Node[]
  pairs: readonly Pair[]
  rowPx: number
}) {
  const [chosen, setChosen] = useState<string>()
  const isConnected = ({ id }: Node) => pairs.some(({ client, channel }) => client === id || channel === id)
  const [left, right] = [clients.filter(isConnected), channels.filter(isConnected)]
  const height = Math.max(left.length, right.length) * rowPx
  // The shorter column is spread over the height of the longer one.
  const heightOf = (column: readonly Node[]) => height / Math.max(1, column.length)
  const placeIn = (column: readonly Node[], id: string) =>
    (column.findIndex((node) => node.id === id) + 0.5) * heightOf(column)
  const isOff = ({ client, channel }: Pair) => chosen !== undefined && chosen !== client && chosen !== channel
  const column = (nodes: readonly Node[], name: string, pathOf: (domain: string, id: string) => string) => (
    <ul aria-label={name} style={{ height }}>
      {nodes.map((node) => (
        <li
          key={node.id}
          style={{ height: heightOf(nodes) }}
          onPointerEnter={() => setChosen(node.id)}
          onPointerLeave={() => setChosen(undefined)}
          onFocus={() => setChosen(node.id)}
          onBlur={() => setChosen(undefined)}
        >
          <Link className="clip" to={pathOf(domain, node.id)}>
            {node.name === '' ? node.id.slice(0, 8) : node.name}
          </Link>
        </li>
      ))}
    </ul>
  )
  return (
    <>
      <p className="muted small connection-key">
        <svg viewBox="0 0 24 8" aria-hidden="true">
          <path className="publishes" d="M0,4 L24,4" />
        </svg>
        publishes
        <svg viewBox="0 0 24 8" aria-hidden="true">
          <path className="subscribes" d="M0,4 L24,4" />
        </svg>
        subscribes
      </p>
      <div className="connection-graph">
        {column(left, 'Connected clients', paths.client)}
        <svg
          viewBox={`0 0 ${WIDTH} ${height}`}
          style={{ height }}
          preserveAspectRatio="none"
          role="img"
          aria-label={`${pairs.length} connections of ${left.length} clients and ${right.length} channels; the matrix says the same`}
        >
          {pairs.flatMap((pair) => {
            const [from, to] = [placeIn(left, pair.client), placeIn(right, pair.channel)]
            const isBoth = pair.publishes && pair.subscribes
            const line = (kind: string, offset: number) => (
              <path
                key={`${pair.client} ${pair.channel} ${kind}`}
                className={`${kind} ${isOff(pair) ? 'off' : ''}`}
                d={`M0,${from + offset} C${WIDTH / 2},${from + offset} ${WIDTH / 2},${to + offset} ${WIDTH},${to + offset}`}
              />
            )
            return [
              ...(pair.publishes ? [line('publishes', isBoth ? -BESIDE_PX : 0)] : []),
              ...(pair.subscribes ? [line('subscribes', isBoth ? BESIDE_PX : 0)] : []),
            ]
          })}
        </svg>
        {column(right, 'Connected channels', paths.channel)}
      </div>
    </>
  )
}
