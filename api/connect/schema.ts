/** Schema of the addresses. */
import { Type } from 'typebox'
import type { Static } from 'typebox'

const At = Type.Object({ url: Type.String() })

export const Addresses = Type.Object(
  {
    http: Type.Object({ url: Type.String({ description: 'Base of the API' }) }),
    mqtt: Type.Optional(At),
    mqtts: Type.Optional(
      Type.Object({
        url: Type.String(),
        ca_url: Type.Optional(
          Type.String({ description: 'The authority of the certificate (PEM), where devices must be given it' }),
        ),
      }),
    ),
    mqtt_websocket: Type.Optional(At),
    coap: Type.Optional(At),
    workers: Type.Optional(Type.Object({ address: Type.String({ description: 'host:port of gRPC' }) })),
  },
  { $id: 'Addresses', description: 'Addresses of the protocols; one that is off, or not known here, is absent' },
)
export type Addresses = Static<typeof Addresses>
