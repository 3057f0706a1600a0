/** The filter bar of a list: a name, and chips for everything else. All of it is in the address. */
import { Suspense, useEffect, useState } from 'react'
import { Button } from '../design/controls.tsx'
import { absoluteTime } from '../design/display.tsx'
import { Icon } from '../design/icon.tsx'
import { EntityName } from './entity-name.tsx'
import type { ChosenType } from './entity-name.tsx'
import { later } from './later.tsx'
import { useDomainId, useViews } from './url.ts'

const FilterDialog = later(async () => (await import('./filter-dialog.tsx')).FilterDialog)

export type FilterField = {
  readonly name: string
  readonly label: string
  readonly hint?: string
  readonly options?: readonly string[]
  /** A moment: seconds since 1970 in the address. */
  readonly isTime?: boolean
  /** The value is the id of an entity of this type, which is chosen and shown by its name. */
  readonly of?: ChosenType
}

const TYPING_MS = 250

export function Filters({
  fields,
  placeholder = 'Filter by name',
  hasName = true,
}: {
  fields: readonly FilterField[]
  placeholder?: string
  /** Whether the rows have names to filter by. */
  hasName?: boolean
}) {
  const [views, setViews] = useViews()
  const domain = useDomainId()
  const [text, setText] = useState(views['name'] ?? '')
  const [isAdding, setAdding] = useState(false)
  const given = views['name'] ?? ''
  useEffect(() => setText(given), [given])
  useEffect(() => {
    if (text === given) return
    const timer = setTimeout(() => setViews({ name: text }), TYPING_MS)
    return () => clearTimeout(timer)
  }, [text, given, setViews])
  const chips = fields.filter(({ name }) => (views[name] ?? '') !== '')
  return (
    <div className="row wrap">
      {hasName ? (
        <div className="search">
          <Icon name="search" />
          <input
            className="input"
            data-filter
            type="search"
            placeholder={placeholder}
            aria-label={placeholder}
            value={text}
            onChange={(event) => setText(event.target.value)}
          />
        </div>
      ) : null}
      <div className="chips">
        {chips.map(({ name, label, isTime, of }) => (
          <span key={name} className="chip">
            {label}:{' '}
            {isTime === true ? (
              absoluteTime(Number(views[name]) * 1_000)
            ) : of === undefined ? (
              views[name]
            ) : (
              <EntityName type={of} domain={domain} id={views[name] ?? ''} />
            )}
            <button type="button" aria-label={`Remove the filter ${label}`} onClick={() => setViews({ [name]: '' })}>
              <Icon name="close" size="small" />
            </button>
          </span>
        ))}
        {chips.length === fields.length ? null : (
          <Button kind="quiet" icon="plus" onClick={() => setAdding(true)}>
            Filter
          </Button>
        )}
      </div>
      <Suspense fallback={null}>
        {isAdding ? <FilterDialog fields={fields} onClose={() => setAdding(false)} /> : null}
      </Suspense>
    </div>
  )
}
