/** The journal of one entity. */
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { query } from '../api/queries.ts'
import type { JournalItem } from '../api/operations.ts'
import { Button, Code } from '../design/controls.tsx'
import { Card, Empty, Facts, Time } from '../design/display.tsx'
import { Dialog } from '../design/layers.tsx'
import { describeChange } from './changes.ts'
import { QueryView } from './states.tsx'

const PAGE = 50

export function EntityJournal({
  domain,
  type,
  id,
}: {
  domain: string
  type: 'client' | 'channel' | 'group' | 'domain'
  id: string
}) {
  const [offset, setOffset] = useState(0)
  const [shown, setShown] = useState<JournalItem>()
  const result = useQuery(
    query('GET /{domain_id}/journal/{entity_type}/{entity_id}', {
      params: { domain_id: domain, entity_type: type, entity_id: id },
      query: { limit: PAGE, offset, with_attributes: true },
    }),
  )
  return (
    <QueryView result={result} entity={`${type}:${id}`}>
      {({ journals, total }) => (
        <Card flush>
          {journals.length === 0 ? <Empty icon="journal" title="Nothing changed yet" /> : null}
          <ol aria-label="Changes">
            {journals.map((item) => (
              <li key={item.id} className="list-row">
                <div className="grow clip">{describeChange(item)}</div>
                <span className="muted small only-desktop">
                  <code>{item.operation}</code>
                </span>
                <span className="muted small">
                  <Time at={item.occurred_at} />
                </span>
                <Button
                  small
                  kind="quiet"
                  icon="more"
                  label={`Details of ${item.operation}`}
                  onClick={() => setShown(item)}
                />
              </li>
            ))}
          </ol>
          {total > PAGE ? (
            <div className="table-foot">
              <span>
                {offset + 1} to {Math.min(offset + PAGE, total)} of {total}
              </span>
              <span className="row">
                <Button
                  small
                  disabledReason={offset === 0 ? 'This is the newest page' : undefined}
                  onClick={() => setOffset(Math.max(0, offset - PAGE))}
                >
                  Newer
                </Button>
                <Button
                  small
                  disabledReason={offset + PAGE >= total ? 'There is nothing older' : undefined}
                  onClick={() => setOffset(offset + PAGE)}
                >
                  Older
                </Button>
              </span>
            </div>
          ) : null}
          {shown === undefined ? null : (
            <Dialog title={describeChange(shown)} kind="drawer" onClose={() => setShown(undefined)}>
              <Facts
                rows={[
                  ['Operation', <code key="operation">{shown.operation}</code>],
                  ['When', shown.occurred_at],
                ]}
              />
              <Code label="record" wrap text={JSON.stringify(shown.attributes ?? {}, undefined, 2)} />
            </Dialog>
          )}
        </Card>
      )}
    </QueryView>
  )
}
