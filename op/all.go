package op

// All returns the operations, topic by topic.
func All() []Any {
	return []Any{
		SearchEvents, GetEvent, GetEventOutcomes, PublishEvent,
		ListSchedules, GetSchedule, PutSchedule, DeleteSchedule, PauseSchedule, ResumeSchedule, RunSchedule,
		ListGroups, GetGroup, DefineGroup, PauseGroup, ResumeGroup, PreviewSeekGroup, SeekGroup, DeleteGroup,
		ListSubscriptions, PutSubscription, DeleteSubscription,
		ListNodes, RemoveNode,
		ListBusyWorkers,
		ListProjections, GetProjection, RebuildProjection, AbandonReplacement,
		ListRelays, GetRelay,
		ListImports, GetImport, DeleteImport,
		ListFailovers, GetFailover, BringBackFailover,
		ListArchives, GetArchive, RelistArchive,
		ListDeadLetters, GetDeadLetter, CountDeadLetters,
		RedriveDeadLetters.Many(), RedriveDeadLetters.Single(), DiscardDeadLetters.Many(), DiscardDeadLetters.Single(),
		RecoverDeadLetters.Many(), RecoverDeadLetters.Single(), PurgeDeadLetters.Many(), PurgeDeadLetters.Single(),
		RedriveEditedDeadLetter,
		ListJobs, GetJob, GetJobTimeline, ListJobSteps, ListJobWaits, EnqueueJob, ChangeJob,
		RetryJobs.Many(), RetryJobs.Single(), CancelJobs.Many(), CancelJob, DeleteJobs.Many(), DeleteJobs.Single(),
		ListStuckJobs, ListJobLimits, SetJobLimit, PauseJobTag, ResumeJobTag, ListJobTags,
		ListNamespaces, DefineNamespace, CloseNamespace, OpenNamespace, KeepNamespace, DeleteNamespace,
		ListStreams, GetStream, SetStreamPolicy, RotateStreamKey, ShredStreamKeys,
		ListTokens, CreateToken, RevokeToken,
		ListWebhooks, GetWebhook, CreateWebhook, ChangeWebhook, DeleteWebhook, EnableWebhook, DisableWebhook,
		RotateWebhookSecret, TestWebhook, RedeliverWebhook, ListWebhookDeliveries,
	}
}
