/** The tiles of a board. Each asks for its own data; what the user may not read is said in the tile. */
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useMemo, useState } from 'react'
import type { DragEvent, ReactNode } from 'react'
import { query } from '../../../api/queries.ts'
import { Skeleton, State, Time, formatValue } from '../../../design/display.tsx'
import { paths } from '../../../paths.ts'
import { ClientLabel } from '../../../shell/names.tsx'
import { ErrorState } from '../../../shell/states.tsx'
import { Picture, Swatch, figureText } from '../charts/chart.tsx'
import { useLines, useReadings } from '../charts/data.tsx'
import { stepsText, valueAt } from '../charts/lines.ts'
import { formatChoice } from '../../../shell/chosen-series.ts'
import { filterOf, seriesOf } from '../charts/series.ts'
import type { PageRange } from '../charts/use-range.ts'
import { valueText } from '../values.ts'
import { AlarmsTile } from './alarms-tile.tsx'
import { fillOf, goodnessOf } from './content.ts'
import type { Tile } from './content.ts'

const NEWEST_MS = 15_000
const CHART_PX = 220

type TileProps = {
  domain: string
  tile: Tile
  range: PageRange
  /** Present while the board is arranged. */
  tools?: ReactNode
  onDrop?: (id: string) => void
}

const DRAGGED = 'application/x-skein-tile'

export function TileView({ domain, tile, range, tools, onDrop }: TileProps) {
  const isArranged = tools !== undefined
  return (
    <section
      className={`tile w${tile.width} ${isArranged ? 'arranged' : ''}`}
      aria-label={tile.title === '' ? tile.kind : tile.title}
      draggable={isArranged}
      onDragStart={(event) => event.dataTransfer.setData(DRAGGED, tile.id)}
      onDragOver={(event: DragEvent) => (isArranged ? event.preventDefault() : undefined)}
      onDrop={(event) => onDrop?.(event.dataTransfer.getData(DRAGGED))}
    >
      {tile.title === '' ? null : (
        <h2 className="tile-title">
          {tile.channel === '' ? (
            <bdi>{tile.title}</bdi>
          ) : (
            <Link to={channelOf(domain, tile)}>
              <bdi>{tile.title}</bdi>
            </Link>
          )}
        </h2>
      )}
      {tools}
      <TileContent domain={domain} tile={tile} range={range} />
    </section>
  )
}

/** The page of the channel, with the series of the tile. */
const channelOf = (domain: string, { channel, series }: Tile) =>
  paths.charts(domain, channel, formatChoice(series.map(seriesOf)))

function TileContent({ domain, tile, range }: Pick<TileProps, 'domain' | 'tile' | 'range'>) {
  switch (tile.kind) {
    case 'chart':
      return <ChartTile domain={domain} tile={tile} range={range} />
    case 'alarms':
      return <AlarmsTile domain={domain} tile={tile} />
    case 'text':
      return <p className="tile-text">{tile.text}</p>
    case 'value':
    case 'gauge':
    case 'state':
      return <NewestTile domain={domain} tile={tile} />
  }
}

function ChartTile({ domain, tile, range }: Pick<TileProps, 'domain' | 'tile' | 'range'>) {
  const place = useMemo(() => ({ domain_id: domain, channel_id: tile.channel }), [domain, tile.channel])
  const chosen = useMemo(() => tile.series.map(seriesOf), [tile.series])
  const { from, to, isUtc, setRange } = range
  const shown = useMemo(() => ({ from, to }), [from, to])
  const { data, error } = useReadings(place, chosen, shown)
  const lines = useLines(domain, data, chosen)
  const [slot, setSlot] = useState<number>()
  if (data === undefined) return error === null ? <Skeleton rows={4} /> : <ErrorState error={error} />
  const unit = [...new Set(lines.map((line) => line.unit))].join(', ')
  if (!lines.some(({ records }) => records > 0)) return <p className="muted">Nothing was measured in this range.</p>
  return (
    <>
      <Picture
        unit={unit}
        lines={lines}
        grid={data.grid}
        range={shown}
        isUtc={isUtc}
        heightPx={CHART_PX}
        onZoom={setRange}
        onPoint={setSlot}
      />
      <ul className="tile-legend">
        {lines.map((line, style) => (
          <li key={line.key} className="row">
            <Swatch style={style} />
            <bdi className="grow clip">{line.label}</bdi>
            <span className="nowrap">
              {figureText(slot === undefined ? line.summary?.last : valueAt(line, slot, data.grid))}{' '}
              <span className="muted">{line.unit}</span>
            </span>
          </li>
        ))}
      </ul>
      <p className="muted small">a point is {stepsText(lines, data.grid)}</p>
    </>
  )
}

function NewestTile({ domain, tile }: Pick<TileProps, 'domain' | 'tile'>) {
  const series = useMemo(() => tile.series.slice(0, 1).map(seriesOf), [tile.series])
  const [one] = series
  const { data, error } = useQuery({
    ...query('GET /{domain_id}/channels/{channel_id}/messages/latest', {
      params: { domain_id: domain, channel_id: tile.channel },
      query: { ...filterOf(series), limit: 100 },
    }),
    refetchInterval: NEWEST_MS,
    enabled: one !== undefined,
  })
  if (one === undefined) return <p className="muted">No series is chosen.</p>
  if (data === undefined) return error === null ? <Skeleton rows={2} /> : <ErrorState error={error} />
  const newest = data.messages.find((message) => seriesOf(message).key === one.key)
  if (newest === undefined) return <p className="muted">No value yet.</p>
  return (
    <>
      {tile.kind === 'state' ? (
        <StateOf tile={tile} text={`${valueText(newest)} ${one.unit}`} goodness={goodnessOf(tile, newest)} />
      ) : (
        <div className="tile-value">
          {valueText(newest)} <span className="muted">{one.unit}</span>
        </div>
      )}
      {tile.kind === 'gauge' && newest.value !== undefined ? <Gauge tile={tile} value={newest.value} /> : null}
      <p className="muted small">
        <ClientLabel domain={domain} id={one.publisher} />
        {newest.time === undefined ? null : (
          <>
            , <Time at={new Date(newest.time * 1_000).toISOString()} />
          </>
        )}
      </p>
    </>
  )
}

const TONES = { good: ['ok', 'Good'], bad: ['bad', 'Bad'], neither: ['idle', 'No rule'] } as const

function StateOf({ tile, text, goodness }: { tile: Tile; text: string; goodness: 'good' | 'bad' | 'neither' }) {
  const [tone, word] = TONES[goodness]
  const isRuled = goodness !== 'neither' || tile.min !== undefined || tile.max !== undefined || tile.text !== ''
  return (
    <div className="tile-value">
      <State tone={tone}>{isRuled ? `${word}: ${text.trim()}` : text.trim()}</State>
    </div>
  )
}

function Gauge({ tile, value }: { tile: Tile; value: number }) {
  const { min = 0, max = 100 } = tile
  return (
    <div className="gauge">
      <svg viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label={`${formatValue(value)} of ${max}`}>
        <rect className="gauge-all" width="100" height="8" />
        <rect className="gauge-part" width={fillOf(tile, value) * 100} height="8" />
      </svg>
      <div className="row spread muted small">
        <span>{formatValue(min)}</span>
        <span>{formatValue(max)}</span>
      </div>
    </div>
  )
}
