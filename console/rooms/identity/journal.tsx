/** The journal of a domain. */
import { useEffect } from 'react'
import { EntityJournal } from '../../shell/entity-journal.tsx'
import { useDomainId } from '../../shell/url.ts'

export function JournalPage() {
  const domain = useDomainId()
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
      <EntityJournal domain={domain} type="domain" id={domain} />
    </>
  )
}
