/** `skein config <key> <value>`. */
import type { Group } from '../shared/command.ts'
import { CONFIG_KEYS, readConfigFile, setConfigKey } from '../shared/config-file.ts'
import { arg } from '../shared/values.ts'

export const config: Group = {
  name: 'config',
  needsServer: false,
  summary: 'change the configuration file',
  commands: [
    {
      words: '',
      args: '<key> <value>',
      tail: 'none',
      summary: `set a key of the configuration file: ${Object.keys(CONFIG_KEYS).join(', ')}`,
      example: 'users_url http://127.0.0.1:9002',
      run(cli, given) {
        const file = readConfigFile(cli.settings.configPath, cli.settings.environment)
        setConfigKey(file, arg(given, 'key'), arg(given, 'value'))
        cli.output.ok()
        return Promise.resolve()
      },
    },
  ],
}
