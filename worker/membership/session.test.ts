// task manager section 1
import { expect, test } from 'vitest'
import { explainRegisterError } from './session.ts'

test('an untrusted certificate is refused with a remedy', () => {
  const error = {
    code: 14,
    details:
      'No connection established. Last error: Error: self-signed certificate; if the root CA is installed locally, try running Node.js with --use-system-ca. Resolution note: ',
  }
  const { kind, message } = explainRegisterError(error, 'manager:7071')
  expect(kind).toBe('unavailable')
  expect(message).toContain('get the join token from the manager again')
  expect(message).toContain('SKEIN_GRPC_TLS_CA')
})

test('any other failure to connect keeps its reason', () => {
  const error = { code: 14, details: 'connect ECONNREFUSED 127.0.0.1:7071' }
  expect(explainRegisterError(error, 'manager:7071').message).toBe(
    'the manager at manager:7071 cannot be reached: connect ECONNREFUSED 127.0.0.1:7071',
  )
})
