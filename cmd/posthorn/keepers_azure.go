//go:build azure

package main

import _ "gocloud.dev/secrets/azurekeyvault" // azurekeyvault://
