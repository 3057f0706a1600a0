/** Ctrl-K: every place and every entity by a few letters. */
import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useDeferredValue, useId, useState } from 'react'
import { query } from '../api/queries.ts'
import { Icon } from '../design/icon.tsx'
import type { IconName } from '../design/icon.tsx'
import { Dialog } from '../design/layers.tsx'
import { paths } from '../paths.ts'
import { SECTIONS } from './navigation.ts'

type Item = { id: string; group: string; label: string; note?: string; icon: IconName; to: string }

const ENTITIES: Readonly<Record<string, { icon: IconName; to: (domain: string, id: string) => string }>> = {
  client: { icon: 'client', to: paths.client },
  channel: { icon: 'channel', to: paths.channel },
  group: { icon: 'group', to: paths.group },
  task: { icon: 'task', to: paths.task },
  workflow: { icon: 'workflow', to: paths.workflow },
}

export function Palette({ domain, onClose }: { domain: string; onClose: () => void }) {
  const [text, setText] = useState('')
  const [at, setAt] = useState(0)
  const navigate = useNavigate()
  const listId = useId()
  const asked = useDeferredValue(text.trim())
  const { data: found } = useQuery({
    ...query('GET /{domain_id}/search', { params: { domain_id: domain }, query: { q: asked, limit: 20 } }),
    enabled: domain !== '' && asked !== '',
  })
  const { data: domains } = useQuery(
    query('GET /domains', { query: { limit: 100, status: 'enabled', order: 'name', dir: 'asc' } }),
  )
  const isLike = (name: string) => name.toLowerCase().includes(text.trim().toLowerCase())
  const items: Item[] = [
    ...(domain === '' ? [] : SECTIONS.flatMap(({ links }) => links))
      .filter(({ name }) => isLike(name))
      .map(({ name, icon, to }) => ({ id: `go-${name}`, group: 'Go to', label: name, icon, to: to(domain) })),
    ...(asked === '' ? [] : (found?.results ?? [])).flatMap(({ id, type, name, tags }) => {
      const entity = ENTITIES[type]
      return entity === undefined
        ? []
        : [
            {
              id,
              group: 'Found',
              label: name === '' ? id : name,
              note: [type, ...tags].join(' · '),
              icon: entity.icon,
              to: entity.to(domain, id),
            },
          ]
    }),
    ...(domains?.domains ?? [])
      .filter(({ id, name }) => id !== domain && isLike(name))
      .slice(0, 6)
      .map(({ id, name }) => ({
        id: `domain-${id}`,
        group: 'Domains',
        label: name,
        icon: 'overview' as const,
        to: paths.overview(id),
      })),
  ]
  const current = Math.min(at, Math.max(0, items.length - 1))
  const open = (item: Item | undefined) => {
    if (item === undefined) return
    onClose()
    void navigate({ to: item.to })
  }
  return (
    <Dialog title="Find" kind="palette" isBare onClose={onClose}>
      <input
        className="palette-input"
        autoFocus
        placeholder="Find a place, client, channel, group or task"
        aria-label="Find"
        role="combobox"
        aria-expanded="true"
        aria-controls={listId}
        aria-activedescendant={items[current] === undefined ? undefined : `${listId}-${current}`}
        value={text}
        onChange={(event) => {
          setText(event.target.value)
          setAt(0)
        }}
        onKeyDown={(event) => {
          if (event.key === 'ArrowDown') setAt((current + 1) % Math.max(1, items.length))
          else if (event.key === 'ArrowUp') setAt((current - 1 + items.length) % Math.max(1, items.length))
          else if (event.key === 'Enter') open(items[current])
          else return
          event.preventDefault()
        }}
      />
      <div className="palette-list" id={listId} role="listbox" aria-label="Results">
        {items.map((item, index) => (
          <div key={item.id} role="presentation">
            {items[index - 1]?.group === item.group ? null : (
              <div className="palette-group" role="presentation">
                {item.group}
              </div>
            )}
            <div
              id={`${listId}-${index}`}
              role="option"
              tabIndex={-1}
              aria-selected={index === current}
              className="palette-item"
              onPointerMove={() => setAt(index)}
              onClick={() => open(item)}
            >
              <Icon name={item.icon} />
              <span className="grow clip">{item.label}</span>
              {item.note === undefined ? null : <span className="muted small clip">{item.note}</span>}
            </div>
          </div>
        ))}
      </div>
      {items.length === 0 ? <p className="palette-group">Nothing has this name, id or tag.</p> : null}
    </Dialog>
  )
}
