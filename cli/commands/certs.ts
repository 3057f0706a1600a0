/** `skein certs`. */
import type { Group } from '../shared/command.ts'
import { arg, contentOf } from '../shared/values.ts'

const CERTS = '/{domain!}/certs'
const TTL = '8760h'

export const certs: Group = {
  name: 'certs',
  summary: 'certificates of clients',
  columns: ['serial_number', 'client_id', 'expiry_time', 'revoked'],
  commands: [
    {
      words: 'issue',
      args: '<client_id>',
      tail: 'domain',
      summary: 'issue a certificate; the answer alone holds its key',
      example: '<client_id> --ttl 8760h',
      flags: ['ttl'],
      call: {
        method: 'POST',
        service: 'certs',
        path: CERTS,
        body: (given) => ({ client_id: arg(given, 'client_id'), ttl: given.flags.get('ttl') ?? TTL }),
      },
    },
    {
      words: 'get all',
      args: '',
      tail: 'domain',
      summary: 'list certificates',
      example: '',
      call: { method: 'GET', service: 'certs', path: CERTS, query: ['limit', 'offset'] },
    },
    {
      words: 'get client',
      args: '<client_id>',
      tail: 'domain',
      summary: 'list the certificates of a client',
      example: '<client_id>',
      call: {
        method: 'GET',
        service: 'certs',
        path: '/{domain!}/serials/{client_id}',
        query: ['limit', 'offset'],
      },
    },
    {
      words: 'get',
      args: '<serial>',
      tail: 'domain',
      summary: 'show a certificate',
      example: '<serial>',
      call: { method: 'GET', service: 'certs', path: `${CERTS}/{serial}` },
    },
    {
      words: 'revoke',
      args: '<client_id>',
      tail: 'domain',
      summary: 'revoke every certificate of a client, or one by its serial',
      example: '<client_id>',
      answer: 'revoked',
      call: { method: 'DELETE', service: 'certs', path: `${CERTS}/{client_id}` },
    },
    {
      words: 'sign',
      args: '<client_id> <csr>',
      tail: 'domain',
      summary: 'sign a request of a client that made its own key; PEM, or @file',
      example: '<client_id> @pump.csr --ttl 8760h',
      flags: ['ttl'],
      call: {
        method: 'POST',
        service: 'certs',
        path: `${CERTS}/csrs/{client_id}`,
        body: (given) => ({ csr: String(contentOf(arg(given, 'csr'))), ttl: given.flags.get('ttl') ?? TTL }),
      },
    },
    {
      words: 'renew',
      args: '<serial>',
      tail: 'domain',
      summary: 'issue a certificate anew',
      example: '<serial>',
      call: { method: 'PATCH', service: 'certs', path: `${CERTS}/{serial}/renew` },
    },
    {
      words: 'ca',
      args: '',
      tail: 'none',
      summary: 'show the certificate of the authority',
      example: '',
      call: { method: 'GET', service: 'certs', path: '/certs/view-ca', auth: 'none' },
    },
    {
      words: 'crl',
      args: '',
      tail: 'none',
      summary: 'print the list of revoked certificates, as PEM',
      example: '',
      call: {
        method: 'GET',
        service: 'certs',
        path: '/certs/crl',
        auth: 'none',
        parameters: () => ({ format: 'pem' }),
      },
    },
  ],
}
