/** Whether a certificate is accepted. */
import type { Certificate } from '../api/operations.ts'
import { State } from '../design/display.tsx'

export function Validity({ certificate }: { certificate: Certificate }) {
  if (certificate.revoked) return <State tone="bad">Revoked</State>
  if (Date.parse(certificate.expiry_time) < Date.now()) return <State tone="idle">Expired</State>
  return <State tone="ok">Valid</State>
}
