/** The tab State of a client: its documents, and what is desired and what is reported side by side. */
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import type { DeviceState } from '../../../api/operations.ts'
import { query } from '../../../api/queries.ts'
import { Button, Check, Menu } from '../../../design/controls.tsx'
import { Card, Empty, Facts, State, Time, formatCount } from '../../../design/display.tsx'
import { Icon } from '../../../design/icon.tsx'
import { useFormAction } from '../../../shell/action.ts'
import { Confirm } from '../../../shell/confirm.tsx'
import { useClientDenied } from '../../../shell/permissions.ts'
import { QueryView } from '../../../shell/states.tsx'
import { useView } from '../../../shell/url.ts'
import { EditDocument, NewDocument } from './editor.tsx'
import { linesOf } from './fields.ts'
import type { Line } from './fields.ts'
import { deleteDocument, documentQuery } from './store.ts'
import type { Place } from './store.ts'
import './desired.css'

/** Reports are no records of the journal, so nothing tells of them. */
const REFRESH_MS = 2_000
/** A document may have thousands of fields. */
const MAX_LINES = 500

export const titleOf = (name: string) => (name === '' ? 'Without a name' : name)

export function Documents({ domain, client }: { domain: string; client: string }) {
  const [name, setName] = useView('document')
  const [isCreating, setCreating] = useState(false)
  const cannotChange = useClientDenied(domain, client)('state_update')
  const list = useQuery({
    ...query('GET /{domain_id}/clients/{client_id}/desired-states', {
      params: { domain_id: domain, client_id: client },
    }),
    refetchInterval: REFRESH_MS,
  })
  return (
    <QueryView result={list} entity={`client:${client}`}>
      {({ states }) => {
        // The document without a name is there before it was written.
        const named = states.filter((one) => one.name !== '')
        const all = [states.find((one) => one.name === ''), ...named]
        return (
          <>
            <Card
              title="Documents"
              flush
              actions={
                <Button icon="plus" disabledReason={cannotChange} onClick={() => setCreating(true)}>
                  New document
                </Button>
              }
            >
              {all.map((one) => (
                <button
                  key={one?.name ?? ''}
                  type="button"
                  className="list-row document"
                  aria-pressed={(one?.name ?? '') === name}
                  onClick={() => setName(one?.name ?? '')}
                >
                  <span className="grow clip">{titleOf(one?.name ?? '')}</span>
                  {one === undefined ? (
                    <span className="muted">never written</span>
                  ) : (
                    <>
                      <Sync isInSync={one.in_sync} />
                      <span className="muted small only-desktop">
                        {one.reported_at === undefined ? 'never reported' : <Time at={one.reported_at} />}
                      </span>
                    </>
                  )}
                </button>
              ))}
            </Card>
            <OneDocument key={name} place={{ domain, client, name }} cannotChange={cannotChange} />
            {isCreating ? (
              <NewDocument
                domain={domain}
                client={client}
                taken={named.map((one) => one.name)}
                onClose={(made) => {
                  setCreating(false)
                  if (made !== undefined) setName(made)
                }}
              />
            ) : null}
          </>
        )
      }}
    </QueryView>
  )
}

function Sync({ isInSync }: { isInSync: boolean }) {
  return isInSync ? <State tone="ok">In sync</State> : <State tone="warn">Out of sync</State>
}

function OneDocument({ place, cannotChange }: { place: Place; cannotChange: string | undefined }) {
  const result = useQuery({ ...documentQuery(place), refetchInterval: REFRESH_MS })
  return (
    <QueryView result={result} entity={`client:${place.client}`}>
      {(state) => <Content state={state} place={place} cannotChange={cannotChange} />}
    </QueryView>
  )
}

function Content({
  state,
  place,
  cannotChange,
}: {
  state: DeviceState
  place: Place
  cannotChange: string | undefined
}) {
  const [dialog, setDialog] = useState<'edit' | 'delete'>()
  const [, setName] = useView('document')
  const close = () => setDialog(undefined)
  const remove = useFormAction('The document was not deleted', async () => {
    await deleteDocument(place)
    close()
    setName('')
    return 'The document is deleted'
  })
  const isWritten = state.version > 0
  return (
    <Card
      title={titleOf(place.name)}
      flush
      actions={
        <>
          {isWritten ? <Sync isInSync={Object.keys(state.delta).length === 0} /> : null}
          <Button icon="settings" disabledReason={cannotChange} onClick={() => setDialog('edit')}>
            Edit
          </Button>
          <Menu
            label="Actions for the document"
            icon="more"
            items={[
              {
                label: 'Delete',
                icon: 'trash',
                isDanger: true,
                disabledReason: cannotChange ?? (isWritten ? undefined : 'It was never written'),
                onSelect: () => setDialog('delete'),
              },
            ]}
          />
        </>
      }
    >
      {isWritten ? (
        <>
          <About state={state} />
          <Sides state={state} />
        </>
      ) : (
        <Empty icon="client" title="Nothing is desired or reported yet">
          Say what the device should be. It receives the difference from what it reports: at once, or when it connects.
        </Empty>
      )}
      {dialog === 'edit' ? <EditDocument state={state} place={place} onClose={close} /> : null}
      {dialog === 'delete' ? (
        <Confirm title="Delete the document" submit="Delete document" action={remove} onClose={close}>
          What is desired and what was reported is deleted. The device receives nothing. This cannot be undone.
        </Confirm>
      ) : null}
    </Card>
  )
}

function About({ state }: { state: DeviceState }) {
  return (
    <div className="document-facts">
      <Facts
        rows={[
          ['Desired', state.desired_at === undefined ? 'never' : <Time key="desired" at={state.desired_at} />],
          ['Reported', state.reported_at === undefined ? 'never' : <Time key="given" at={state.reported_at} />],
          ['Version', <code key="version">{state.version}</code>],
        ]}
      />
    </div>
  )
}

const MARKS = { differs: 'Differs', same: 'Same', 'only reported': 'Only reported' } as const

/** Both sides by field. What differs is first, and has a word and an icon beside its colour. */
function Sides({ state }: { state: DeviceState }) {
  const [onlyDifferent, setOnlyDifferent] = useState(false)
  const all = linesOf(state)
  const different = all.filter(({ mark }) => mark === 'differs').length
  const shown = all.slice(0, onlyDifferent ? different : MAX_LINES)
  return (
    <>
      <div className="document-filter">
        <Check checked={onlyDifferent} onChange={setOnlyDifferent}>
          Only what differs ({formatCount(different)} of {formatCount(all.length)})
        </Check>
      </div>
      <div className="scroll-x">
        <table className="plain sides" aria-label="Desired and reported">
          <thead>
            <tr>
              <th scope="col">Field</th>
              <th scope="col">Desired</th>
              <th scope="col">Reported</th>
              <th scope="col">
                <span className="visually-hidden">Difference</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {shown.slice(0, MAX_LINES).map((line) => (
              <Side key={line.key} line={line} />
            ))}
          </tbody>
        </table>
      </div>
      {all.length > MAX_LINES ? (
        <p className="muted small document-filter">
          The first {formatCount(MAX_LINES)} fields are shown. Edit shows all of what is desired.
        </p>
      ) : null}
    </>
  )
}

function Side({ line: { name, desired, reported, mark } }: { line: Line }) {
  return (
    <tr className={mark === 'differs' ? 'differs' : ''}>
      <th scope="row">
        <code>{name}</code>
      </th>
      <td>{desired === undefined ? <span className="muted">none</span> : <code>{desired}</code>}</td>
      <td>{reported === undefined ? <span className="muted">none</span> : <code>{reported}</code>}</td>
      <td className="mark">
        {mark === 'differs' ? (
          <span className="state warn">
            <Icon name="warn" size="small" />
            {MARKS.differs}
          </span>
        ) : (
          <span className="muted">{MARKS[mark]}</span>
        )}
      </td>
    </tr>
  )
}
