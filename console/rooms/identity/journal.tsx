/** The journal of a domain. */
import { useEffect } from 'react'
import { Check } from '../../design/controls.tsx'
import { EntityJournal } from '../../shell/entity-journal.tsx'
import type { JournalFilters } from '../../shell/entity-journal.tsx'
import { Filters } from '../../shell/filters.tsx'
import { useDomainId, useView, useViews } from '../../shell/url.ts'

const FIELDS = [
  { name: 'operation', label: 'Operation', hint: 'Such as client.update' },
  { name: 'from', label: 'From', isTime: true },
  { name: 'to', label: 'To', isTime: true },
] as const

export function JournalPage() {
  const domain = useDomainId()
  const [views] = useViews()
  const [sessions, setSessions] = useView('sessions')
  const filters: JournalFilters = {
    ...Object.fromEntries(FIELDS.map(({ name }) => [name, views[name]])),
    // Devices begin and end sessions far more often than a person changes something.
    ...(sessions === '' ? { sessions: false } : {}),
  }
  useEffect(() => {
    document.title = 'Journal · Skein'
  }, [])
  return (
    <>
      <div className="page-head">
        <h1>Journal</h1>
      </div>
      <p className="muted">
        Every change in the domain, with who made it. Records of entities that you cannot read are left out.
      </p>
      <div className="row wrap">
        <Filters fields={FIELDS} hasName={false} />
        <Check checked={sessions !== ''} onChange={(isShown) => setSessions(isShown ? 'shown' : '')}>
          Sessions of devices
        </Check>
      </div>
      <EntityJournal domain={domain} type="domain" id={domain} filters={filters} />
    </>
  )
}
