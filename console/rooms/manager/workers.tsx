/** The workers that run tasks of a domain. */
import { useEffect } from 'react'
import { useDomainId } from '../../shell/url.ts'
import { WorkerList } from './worker-list.tsx'

export function Workers() {
  const domain = useDomainId()
  useEffect(() => {
    document.title = 'Workers · Skein'
  }, [])
  return (
    <>
      <div className="page-head">
        <h1>Workers</h1>
      </div>
      <WorkerList domain={domain} />
    </>
  )
}
