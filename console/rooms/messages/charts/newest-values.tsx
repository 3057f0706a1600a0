/** The newest values of the series of a channel. A person chooses here which series are shown. */
import type { Answer } from '../../../api/call.ts'
import { Button, Menu } from '../../../design/controls.tsx'
import { Card, Time, formatCount } from '../../../design/display.tsx'
import { ClientName, useClientNames } from '../../../shell/names.tsx'
import { valueText } from '../values.ts'
import { MAX_CHOSEN, naturalOrder, seriesOf } from './series.ts'
import type { Series } from './series.ts'

type Messages = Answer<'GET /{domain_id}/channels/{channel_id}/messages/latest'>['messages']

export function NewestValues({
  domain,
  messages,
  total,
  shown,
  chosen,
  onChoose,
  onReset,
  onMore,
}: {
  domain: string
  messages: Messages
  total: number
  shown: readonly Series[]
  chosen: readonly Series[] | undefined
  onChoose: (series: readonly Series[]) => void
  onReset: () => void
  onMore: (() => void) | undefined
}) {
  const nameOf = useClientNames(
    domain,
    [...new Set(messages.map(({ publisher }) => publisher))].filter((id) => id !== ''),
  )
  const rows = messages
    .map((message) => ({ message, series: seriesOf(message), isNumeric: message.value !== undefined }))
    .toSorted(
      (one, other) =>
        naturalOrder(one.series.name, other.series.name) ||
        naturalOrder(nameOf(one.series.publisher), nameOf(other.series.publisher)) ||
        naturalOrder(one.series.key, other.series.key),
    )
  const shownKeys = new Set(shown.map(({ key }) => key))
  const numeric = rows.filter(({ isNumeric }) => isNumeric).map(({ series }) => series)
  const toggle = (series: Series) =>
    onChoose(shownKeys.has(series.key) ? shown.filter(({ key }) => key !== series.key) : [...shown, series])
  return (
    <Card
      title={`Newest values of ${formatCount(total)} series`}
      flush
      actions={
        <>
          {chosen === undefined ? null : <Button onClick={onReset}>Show the first series</Button>}
          <Button
            onClick={() => onChoose(numeric.slice(0, MAX_CHOSEN))}
            disabledReason={numeric.length === 0 ? 'No series has numbers' : undefined}
          >
            {numeric.length > MAX_CHOSEN ? `Show the first ${MAX_CHOSEN}` : 'Show all'}
          </Button>
        </>
      }
    >
      <div className="scroll-x" tabIndex={0} role="region" aria-label="Newest values">
        <table className="plain">
          <thead>
            <tr>
              <th>
                <span className="visually-hidden">Shown</span>
              </th>
              <th>Name</th>
              <th className="right">Value</th>
              <th>Publisher</th>
              <th>Subtopic</th>
              <th>Time</th>
              <th>
                <span className="visually-hidden">Choice</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.map(({ message, series, isNumeric }) => (
              <tr key={series.key}>
                <td>
                  <input
                    type="checkbox"
                    aria-label={`Show ${series.name} of ${nameOf(series.publisher)}`}
                    checked={shownKeys.has(series.key)}
                    disabled={!isNumeric || (shown.length >= MAX_CHOSEN && !shownKeys.has(series.key))}
                    title={isNumeric ? undefined : 'Only numbers are drawn'}
                    onChange={() => toggle(series)}
                  />
                </td>
                <td>{series.name === '' ? <span className="muted">none</span> : <bdi>{series.name}</bdi>}</td>
                <td className="right">
                  {valueText(message)} <span className="muted">{series.unit}</span>
                </td>
                <td>
                  <ClientName domain={domain} id={series.publisher} />
                </td>
                <td>{series.subtopic === '' ? <span className="muted">none</span> : <code>{series.subtopic}</code>}</td>
                <td>
                  {message.time === undefined ? null : <Time at={new Date(message.time * 1_000).toISOString()} />}
                </td>
                <td className="right">
                  <Menu
                    label={`Choose by ${series.name} of ${nameOf(series.publisher)}`}
                    icon="more"
                    items={[
                      {
                        label: 'Only this series',
                        disabledReason: isNumeric ? undefined : 'Only numbers are drawn',
                        onSelect: () => onChoose([series]),
                      },
                      {
                        label: `All of ${nameOf(series.publisher)}`,
                        onSelect: () =>
                          onChoose(numeric.filter((one) => one.publisher === series.publisher).slice(0, MAX_CHOSEN)),
                      },
                      {
                        label: `${series.name === '' ? 'This name' : series.name} of all devices`,
                        onSelect: () =>
                          onChoose(numeric.filter((one) => one.name === series.name).slice(0, MAX_CHOSEN)),
                      },
                    ]}
                  />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {onMore === undefined ? null : (
        <div className="row" style={{ padding: '8px 12px' }}>
          <span className="muted small grow">
            {formatCount(messages.length)} of {formatCount(total)} series are listed.
          </span>
          <Button onClick={onMore}>List more</Button>
        </div>
      )}
    </Card>
  )
}
