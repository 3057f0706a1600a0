/** The series of a channel as charts, one for each unit, and their newest values. */
import { keepPreviousData, useIsFetching, useQueries, useQuery } from '@tanstack/react-query'
import { Suspense, lazy, useEffect, useMemo, useState } from 'react'
import { query } from '../../api/queries.ts'
import { Button, Segments } from '../../design/controls.tsx'
import { Card, Empty, Skeleton, Time, absoluteTime, formatCount } from '../../design/display.tsx'
import { ClientLabel, ClientName } from '../../shell/names.tsx'
import { QueryView } from '../../shell/states.tsx'
import { useIsDark } from '../../shell/theme.ts'
import { useView, useViews } from '../../shell/url.ts'
import { RANGES, fetchAggregates, seriesOf, stepOf } from './series.ts'
import type { Series } from './series.ts'
import { valueText } from './values.ts'

const Plot = lazy(async () => ({ default: (await import('../../charts/plot.tsx')).Plot }))

const COLORS = 6
const MAX_SERIES = 100
/** New messages are drawn at most this often. */
const REDRAW_MS = 1_500

/** The newest end of the range: moves on when messages arrived, and every 15 s without. */
function useEnd(received: number): number {
  const [end, setEnd] = useState(() => Date.now() / 1_000)
  // A slow answer is awaited: the next question would cancel it.
  const isAsking = useIsFetching({ queryKey: ['aggregates'] }) > 0
  useEffect(() => {
    if (received === 0 || isAsking) return
    const timer = setTimeout(() => setEnd(Date.now() / 1_000), REDRAW_MS)
    return () => clearTimeout(timer)
  }, [received, isAsking])
  useEffect(() => {
    const timer = setInterval(() => setEnd(Date.now() / 1_000), 15_000)
    return () => clearInterval(timer)
  }, [])
  return end
}

export function ChannelData({
  domain,
  channel,
  received,
  onSend,
}: {
  domain: string
  channel: string
  received: number
  onSend: () => void
}) {
  const place = { domain_id: domain, channel_id: channel }
  const [views, setViews] = useViews()
  const [range, setRange] = useView('range', '1h')
  const end = useEnd(received)
  const isZoomed = views['from'] !== undefined && views['to'] !== undefined
  const from = isZoomed ? Number(views['from']) : end - (RANGES[range] ?? 3_600)
  const to = isZoomed ? Number(views['to']) : end
  const latest = useQuery({
    ...query('GET /{domain_id}/channels/{channel_id}/messages/latest', { params: place, query: { limit: MAX_SERIES } }),
    refetchInterval: 15_000,
  })
  const { refetch } = latest
  useEffect(() => {
    if (received > 0) void refetch()
  }, [end, received, refetch])
  const [step] = stepOf(to - from)
  return (
    <QueryView result={latest} entity={`channel:${channel}`}>
      {({ messages, total }) =>
        messages.length === 0 ? (
          <Card>
            <Empty
              icon="channel"
              title="No measurements yet"
              actions={
                <Button kind="primary" icon="send" onClick={onSend}>
                  Send the first message
                </Button>
              }
            >
              SenML records appear here as charts. Connect a client and publish with one of its snippets.
            </Empty>
          </Card>
        ) : (
          <>
            <div className="row wrap spread">
              {isZoomed ? (
                <div className="row wrap">
                  <Button icon="close" onClick={() => setViews({ from: undefined, to: undefined })}>
                    Leave the zoom
                  </Button>
                  <span className="muted">
                    {absoluteTime(from * 1_000)} to {absoluteTime(to * 1_000)}
                  </span>
                </div>
              ) : (
                <Segments
                  label="Range"
                  value={range}
                  onChange={setRange}
                  options={Object.keys(RANGES).map((key): [string, string] => [key, key])}
                />
              )}
              <span className="muted small">a point is {step}; drag in a chart to zoom</span>
            </div>
            <Charts
              place={place}
              series={messages.filter(({ value }) => value !== undefined).map((message) => seriesOf(message))}
              from={from}
              to={to}
              onZoom={(start, stop) => setViews({ from: start.toFixed(3), to: stop.toFixed(3) })}
            />
            <Card title={`Newest values of ${formatCount(total)} ${total === 1 ? 'series' : 'series'}`} flush>
              <div className="scroll-x" tabIndex={0} role="region" aria-label="Newest values">
                <table className="plain">
                  <thead>
                    <tr>
                      <th>Name</th>
                      <th className="right">Value</th>
                      <th>Publisher</th>
                      <th>Subtopic</th>
                      <th>Time</th>
                    </tr>
                  </thead>
                  <tbody>
                    {messages.map((message) => {
                      const { key, name, unit, publisher, subtopic } = seriesOf(message)
                      return (
                        <tr key={key}>
                          <td>{name === '' ? <span className="muted">none</span> : name}</td>
                          <td className="right">
                            {valueText(message)} <span className="muted">{unit}</span>
                          </td>
                          <td>
                            <ClientName domain={domain} id={publisher} />
                          </td>
                          <td>{subtopic === '' ? <span className="muted">none</span> : <code>{subtopic}</code>}</td>
                          <td>
                            {message.time === undefined ? null : (
                              <Time at={new Date(message.time * 1_000).toISOString()} />
                            )}
                          </td>
                        </tr>
                      )
                    })}
                  </tbody>
                </table>
              </div>
            </Card>
          </>
        )
      }
    </QueryView>
  )
}

type ChartsProps = {
  place: { domain_id: string; channel_id: string }
  series: readonly Series[]
  from: number
  to: number
  onZoom: (from: number, to: number) => void
}

function Charts({ place, series, from, to, onZoom }: ChartsProps) {
  const units = [...new Set(series.map(({ unit }) => unit))]
  if (series.length === 0) return null
  return (
    <>
      {units.map((unit) => (
        <Chart
          key={unit}
          place={place}
          unit={unit}
          series={series.filter((one) => one.unit === unit)}
          from={from}
          to={to}
          onZoom={onZoom}
        />
      ))}
    </>
  )
}

/** Two publishers may use one name. */
const isAmbiguous = (series: readonly Series[], one: Series) =>
  series.filter((other) => nameOf(other) === nameOf(one)).length > 1

const nameOf = ({ name, subtopic }: Series) =>
  [subtopic, name === '' ? 'value' : name].filter((part) => part !== '').join(' ')

function Chart({ place, unit, series, from, to, onZoom }: ChartsProps & { unit: string }) {
  const isDark = useIsDark()
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set())
  const shown = series.filter(({ key }) => !hidden.has(key)).slice(0, COLORS)
  const colorOf = (one: Series) => (series.indexOf(one) % COLORS) + 1
  const results = useQueries({
    queries: shown.map((one) => ({
      queryKey: ['aggregates', place, one.key, Math.round(from), Math.round(to)],
      queryFn: async ({ signal }: { signal: AbortSignal }) => await fetchAggregates(place, one, { from, to }, signal),
      placeholderData: keepPreviousData,
      gcTime: 30_000,
    })),
  })
  const updates = results.map((result) => result.dataUpdatedAt).join()
  const isReady = results.some(({ data }) => data !== undefined)
  const plotted = useMemo(
    () => ({
      times: results.find(({ data }) => data !== undefined)?.data?.times ?? [],
      series: shown.flatMap((one, index) => {
        const data = results[index]?.data
        return data === undefined
          ? []
          : [{ label: nameOf(one), color: colorOf(one), mean: data.mean, min: data.min, max: data.max }]
      }),
    }),
    // oxlint-disable-next-line react-hooks/exhaustive-deps -- the results change with their times
    [updates, shown.map(({ key }) => key).join()],
  )
  return (
    <Card
      title={
        <div className="legend" role="group" aria-label="Series">
          {series.slice(0, COLORS * 2).map((one) => {
            const isShown = shown.includes(one)
            return (
              <button
                key={one.key}
                type="button"
                aria-pressed={isShown}
                onClick={() => {
                  const next = new Set(hidden)
                  if (!next.delete(one.key)) next.add(one.key)
                  setHidden(next)
                }}
              >
                <span className={`swatch s${colorOf(one)}`} />
                {nameOf(one)}
                {isAmbiguous(series, one) ? (
                  <span className="muted">
                    <ClientLabel domain={place.domain_id} id={one.publisher} />
                  </span>
                ) : null}
              </button>
            )
          })}
          {series.length > COLORS * 2 ? (
            <span className="muted small">and {series.length - COLORS * 2} more below</span>
          ) : null}
        </div>
      }
    >
      {isReady ? (
        <Suspense fallback={<div className="chart" />}>
          <Plot
            label={`Chart of ${shown.map((one) => nameOf(one)).join(', ')}${unit === '' ? '' : ` in ${unit}`}. The newest values are in the table below.`}
            times={plotted.times}
            series={plotted.series}
            from={from}
            to={to}
            unit={unit}
            theme={String(isDark)}
            onZoom={onZoom}
          />
        </Suspense>
      ) : (
        <div className="chart">
          <Skeleton rows={5} />
        </div>
      )}
    </Card>
  )
}
