/** The state of a device for the device itself: `/c/{domain}/state`. */
import { Type } from 'typebox'
import type { DeviceReports } from '#api/devices/index.ts'
import {
  DeviceState,
  IfMatch,
  StateBody,
  StateConflict,
  StateName,
  parseIfMatch,
  presentState,
} from '#api/devices/index.ts'
import { JSON_TYPE, SENML_CBOR, SENML_JSON, packOfFields, packToCbor } from '#api/messages/index.ts'
import type { Messages } from '#api/messages/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { MERGE_PATCH_TYPE, acceptMergePatches, responses } from '#http/index.ts'
import type { HttpApp, RoutePlugin } from '#http/index.ts'
import type { ChannelAccessDeps } from './access.ts'
import { DEVICE_CREDENTIALS, DeviceDomain, deviceOf, identifyDevices } from './device.ts'

const tags = ['states']
const CREDENTIALS =
  'Authorization: `Client <secret>`, Basic with client id and secret, or the certificate of the device.'

export function deviceStateRoutes(
  reports: DeviceReports,
  messages: Pick<Messages, 'rates'>,
  deps: ChannelAccessDeps,
): RoutePlugin {
  return async (app) => {
    await app.register((scope: HttpApp, _options, done) => {
      identifyDevices(scope, deps)
      acceptMergePatches(scope)
      for (const params of [DeviceDomain, Type.Object({ ...DeviceDomain.properties, name: StateName })])
        addRoutes(scope, params, reports, messages)
      done()
    })
  }
}

/** The type of SenML that has the highest weight, the first of equal ones; undefined: it is JSON, or none is named. */
function senmlTypeOf(accept: string | undefined): string | undefined {
  let best: { type: string | undefined; weight: number } = { type: undefined, weight: 0 }
  for (const part of (accept ?? '').split(',')) {
    const [type = '', ...parameters] = part.split(';').map((text) => text.trim().toLowerCase())
    if (![SENML_JSON, SENML_CBOR, JSON_TYPE].includes(type)) continue
    const given = Number.parseFloat(parameters.find((parameter) => parameter.startsWith('q='))?.slice(2) ?? '1')
    // An invalid weight, or none, is not treated as 0.
    const weight = Number.isNaN(given) ? 1 : given
    if (weight > best.weight) best = { type, weight }
  }
  return best.type === JSON_TYPE ? undefined : best.type
}

function addRoutes(
  scope: HttpApp,
  params: typeof DeviceDomain,
  reports: DeviceReports,
  messages: Pick<Messages, 'rates'>,
): void {
  const isNamed = 'name' in params.properties
  const path = isNamed ? '/c/:domain_id/state/:name' : '/c/:domain_id/state'
  const what = isNamed ? 'a named document of its state' : 'its state'
  const nameIn = (given: unknown) => (given as { name?: string }).name
  scope.get(
    path,
    {
      config: { ownCredentials: DEVICE_CREDENTIALS },
      schema: {
        tags,
        summary: `View ${what}, as the device itself`,
        description: `With \`Accept: ${SENML_JSON}\` or \`${SENML_CBOR}\`, the response is the difference as a pack, and \`ETag\` has its version. ${CREDENTIALS}`,
        params,
        response: responses({ 200: DeviceState }, 'unprocessable'),
      },
    },
    async (request, reply) => {
      const state = presentState(await reports.get(deviceOf(request), nameIn(request.params)))
      const type = request.method === 'HEAD' ? undefined : senmlTypeOf(request.headers.accept)
      if (type === undefined) return state
      const pack = packOfFields(state.delta)
      if (pack === undefined)
        throw new ServiceError('unprocessable', 'the difference is not flat: ask for it as application/json')
      const body = type === SENML_CBOR ? packToCbor(pack) : pack
      return await reply
        .type(type)
        .header('ETag', `"${state.version}"`)
        .send(body as never)
    },
  )
  scope.patch(
    path,
    {
      config: { ownCredentials: DEVICE_CREDENTIALS },
      schema: {
        tags,
        summary: `Report ${what}, as the device itself`,
        description: `The body is a JSON merge patch of what is reported. ${CREDENTIALS}`,
        params,
        headers: IfMatch,
        consumes: ['application/json', MERGE_PATCH_TYPE],
        body: StateBody,
        response: responses({ 200: DeviceState, 412: StateConflict }, 'not_found', 'unprocessable', 'rate_limited'),
      },
    },
    async (request) => {
      const device = deviceOf(request)
      const { 'content-length': declared } = request.headers
      const bytes = declared === undefined ? Buffer.byteLength(JSON.stringify(request.body)) : Number(declared)
      await messages.rates.require(device.domainKey, bytes)
      const ifMatch = parseIfMatch(request.headers['if-match'])
      const report = { bytes, patch: () => request.body, ifMatch }
      return presentState(await reports.report(device, nameIn(request.params), report))
    },
  )
}
