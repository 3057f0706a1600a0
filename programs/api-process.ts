/** One of several processes of the platform; `npm start` and `npm run api` start them (SKEIN_API_PROCESSES). */
import { runProgram } from '#core/program/index.ts'
import { joinSupervisor } from '#infrastructure/processes/index.ts'
import type { ApiAssignment } from './start/api-processes.ts'
import { API_SETTINGS } from './start/api-settings.ts'
import { serveApi } from './start/serve-api.ts'

const name = process.argv[2] ?? '1'

await runProgram({
  name: 'api',
  process: name,
  summary: 'One of several processes of the platform; started by npm start and npm run api.',
  settings: API_SETTINGS,
  operand: { name: 'PROCESS', setting: 'PROCESS' },
  ownPrefixes: ['SKEIN_', 'PROXY_'],
  otherSettings: async () => (await import('./every-setting.ts')).EVERY_SETTING,
  mayHaveParent: true,
  async run(life, config, logger) {
    const member = joinSupervisor(life, name)
    const assignment = await member.assignment<ApiAssignment>()
    member.serves(await serveApi(life, { config, logger, place: { member, assignment } }))
  },
})
