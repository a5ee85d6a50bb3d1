package main

import (
	_ "gocloud.dev/secrets/awskms"     // awskms://
	_ "gocloud.dev/secrets/hashivault" // hashivault://
)
