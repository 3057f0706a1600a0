/** `npm run api`: the platform alone; manager, workers and proxy run elsewhere. */
import {
  COAP_SETTINGS,
  IDENTITY_SETTINGS,
  MQTT_SETTINGS,
  PROVISIONING_SETTINGS,
  SERVICE_PORTS,
  startApi,
} from '#api/index.ts'
import { INFRASTRUCTURE_SETTINGS, startInfrastructure } from '#core/infrastructure/index.ts'
import { HTTP_SETTINGS, createMetrics, startHttpServer, startTlsFiles } from '#core/http/index.ts'
import { runProgram } from '#core/program/index.ts'
import { SEALED_COLUMNS } from '#api/config.ts'

/** Connections of the pool; ingest and the journal's tail have their own. */
const MAX_CONNECTIONS = 16

await runProgram({
  name: 'api',
  summary: 'Runs the platform: users, domains, clients, channels and messages over HTTP.',
  settings: {
    infrastructure: INFRASTRUCTURE_SETTINGS,
    http: HTTP_SETTINGS,
    identity: IDENTITY_SETTINGS,
    provisioning: PROVISIONING_SETTINGS,
    coap: COAP_SETTINGS,
    mqtt: MQTT_SETTINGS,
  },
  ownPrefixes: [
    'SKEIN_ADMIN_',
    'SKEIN_HTTP_',
    'SKEIN_DATABASE_',
    'SKEIN_TLS_',
    'SKEIN_COAP_',
    'SKEIN_MQTT_',
    'SKEIN_MQTTS_',
  ],
  async run(life, config, logger) {
    const infrastructure = await startInfrastructure(life, {
      config: config.infrastructure,
      logger,
      kind: 'api',
      maxConnections: MAX_CONNECTIONS,
      sealed: SEALED_COLUMNS,
    })
    const metrics = createMetrics()
    const { host, maxBodyBytes } = config.http
    const { coapPort } = config.coap
    const coap = coapPort === 0 ? undefined : { host, port: coapPort, maxBodyBytes }
    const api = await startApi(life, {
      infrastructure,
      config: config.identity,
      provisioning: config.provisioning,
      coap,
      mqtt: { config: config.mqtt, host, maxBodyBytes, files: await startTlsFiles(life, config.http, logger) },
      metrics,
    })
    const warning = api.provisioning.warningFor(host)
    if (warning !== undefined) logger.warn(warning)
    const servicePorts = config.http.servicePorts ? [...SERVICE_PORTS.keys()] : []
    const { listeners, scheme } = await startHttpServer(life, {
      config: config.http,
      logger,
      build: infrastructure.build,
      metrics,
      streams: infrastructure.streams,
      ports: [
        { port: config.http.httpPort, isOptional: false, setting: 'SKEIN_HTTP_PORT' },
        ...(coapPort === 0 ? [] : [{ port: coapPort, isOptional: true, setting: 'SKEIN_COAP_PORT' }]),
        ...servicePorts.map((port) => ({ port, isOptional: true, setting: 'SKEIN_SERVICE_PORTS' })),
      ],
      serviceOf: (port) => (port === coapPort ? 'coap' : (SERVICE_PORTS.get(port ?? 0) ?? 'api')),
      authenticate: api.authenticate,
      tlsOf: api.provisioning.certificates.tlsOf,
      routes: [api.routes],
    })
    const { username, secretFile, madeSecret } = api.identity.firstAdmin
    if (madeSecret !== undefined)
      logger.info(`the first administrator is ${username}, with the password in ${secretFile}`)
    logger.info(`the platform is at ${scheme}://${config.http.host}:${listeners.ports[0]}`)
  },
})
